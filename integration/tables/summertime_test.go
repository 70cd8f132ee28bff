package tables_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// When summer time ends, local time has one hour twice, and UNIX_TIMESTAMP(NOW()) is the same in both. The statements of
// the documents must not use it: a FLOOR_TICK that is an hour too high stops all creates for an hour.
func TestDocuments_TheTimeDoesNotDependOnTheZone(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
	for _, e := range testkit.Engines() {
		if !e.IsMySQL() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			db := e.NewServer(t).New(t).Open(t, nil, "time_zone=%27SYSTEM%27")
			harness.Use(t, db, uidplugin.WithLead(10*time.Second))
			for _, hour := range []int{0, 1} {
				now := time.Date(2026, 10, 25, hour, 15, 0, 123e6, time.UTC)
				tick := now.UnixMilli() - 1514764800000
				for _, name := range []string{"failures.md", "zh/failures.md"} {
					statement := extract(t, name, "MySQL [^`]*MariaDB[^`]*`(UPDATE WORKER_REGISTRY SET FLOOR_TICK =[^`]*)`")
					at(t, db, now, func(tx *gorm.DB) error { return tx.Exec(statement).Error })
					var floor int64
					testkit.Must(t, db.Raw("SELECT FLOOR_TICK FROM WORKER_REGISTRY").Scan(&floor).Error)
					if want := tick + 10_000; floor != want {
						t.Errorf("%s at %v: FLOOR_TICK is %d, %v off", name, now, floor, time.Duration(floor-want)*time.Millisecond)
					}
				}
				expression := extract(t, "sql.md", `(?s)-- MySQL, MariaDB\nSELECT \* FROM orders WHERE id >=\s+(.*?);`)
				var id int64
				at(t, db, now, func(tx *gorm.DB) error { return tx.Raw("SELECT CAST(" + expression + " AS SIGNED)").Scan(&id).Error })
				if want := (tick - 3600000) << 22; id != want {
					t.Errorf("sql.md at %v: %d, %v off", now, id, time.Duration((id-want)>>22)*time.Millisecond)
				}
			}
		})
	}
}

// extract returns the group of an expression in a document.
func extract(t *testing.T, document, expression string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + document)
	testkit.Must(t, err)
	found := regexp.MustCompile(expression).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", document, expression)
	}
	return string(found[1])
}

// at runs f while the clock of a session stands still.
func at(t *testing.T, db *gorm.DB, now time.Time, f func(tx *gorm.DB) error) {
	t.Helper()
	testkit.Must(t, db.Connection(func(tx *gorm.DB) error {
		if err := tx.Exec(fmt.Sprintf("SET timestamp = %d.%03d", now.Unix(), now.UnixMilli()%1000)).Error; err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return err
		}
		return tx.Exec("SET timestamp = DEFAULT").Error
	}))
}
