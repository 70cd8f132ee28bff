package upsert_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

type SizeRow struct {
	ID         int64 `gorm:"uid"`
	A, B, C, D int
}

// The id is one value more for each row. If a statement has too many because of it, the error names the largest batch,
// and that one works.
func TestCreate_OfMoreValuesThanAStatementTakes(t *testing.T) {
	t.Parallel()
	most := regexp.MustCompile(`at most (\d+) rows`)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		plain, db := d.Open(t, nil), d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, plain.AutoMigrate(&SizeRow{}))
		limit := map[bool]int{true: 32766, false: 65535}[d.Name == "sqlite"]
		rows := make([]SizeRow, limit/4)
		testkit.Must(t, plain.Create(&rows).Error)
		rows = make([]SizeRow, limit/4)
		err := db.Create(&rows).Error
		match := most.FindStringSubmatch(fmt.Sprint(err))
		if match == nil || !strings.Contains(err.Error(), "docs/from-auto-increment.md") || strings.Contains(err.Error(), "%!") {
			t.Fatal(err)
		}
		size, _ := strconv.Atoi(match[1])
		if size != limit/5 {
			t.Errorf("%d rows, not %d", size, limit/5)
		}
		testkit.Must(t, db.CreateInBatches(make([]SizeRow, size+1), size).Error)

		more := make([]SizeRow, limit/4+1) // too many without the id, too
		if err := db.Create(&more).Error; err == nil || most.MatchString(err.Error()) {
			t.Error(err)
		}
	})
}
