package follow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// When summer time ends, the server's local time has one hour twice. Formerly the database's clock was read from local
// time, so it seemed to be an hour ahead during the first of the two, and followers stood still.
func TestMark_AdvancesWhileSummerTimeEnds(t *testing.T) {
	for _, e := range testkit.Engines() {
		if !e.IsMySQL() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			end := time.Now().UTC().Add(90 * time.Minute) // summer time ends in half an hour, and is an hour ahead
			day := end.YearDay()
			if end.Year()%4 == 0 && day >= 60 {
				day-- // J numbers days without 29 February
			}
			begin := (day+100)%365 + 1
			t.Setenv("TZ", fmt.Sprintf("WIN0SUM,J%d/0,J%d/%d:%02d", begin, day, end.Hour(), end.Minute()))
			server := e.NewServer(t)
			db := server.New(t).Open(t, nil, "time_zone=%27SYSTEM%27")
			var now time.Time
			testkit.Must(t, db.Raw("SELECT NOW()").Scan(&now).Error)
			if ahead := time.Until(now); ahead < 59*time.Minute || ahead > 61*time.Minute {
				t.Fatalf("the server's local time is %v ahead, so it is not summer time there", ahead)
			}
			testkit.Must(t, db.AutoMigrate(&event{}))
			conn := connect(t, db)
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			published := testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now))
			at, ok := follow.TooLate(db.Create(&event{ID: published - 1}).Error)
			if ahead := time.Until(at); !ok || ahead.Abs() > 2*time.Minute {
				t.Errorf("a row was refused at %v, in %v", at, ahead)
			}
		})
	}
}
