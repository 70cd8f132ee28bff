package paths_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The first program that anybody writes has no options, an int64 key and GORM's own AutoMigrate. It works without a
// warning, its log lines are short, and the error of Find has the line that makes it work.
func TestMainJob_TheFirstProgramStartsQuietly(t *testing.T) {
	t.Parallel()
	type Order struct {
		ID   int64 `gorm:"uid"`
		Item string
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		var log testkit.Log
		p := harness.Use(t, db, uidplugin.WithLogger(log.Logger()))
		testkit.Must(t, db.AutoMigrate(&Order{}))
		order := Order{Item: "tea"}
		testkit.Must(t, db.Create(&order).Error)
		origin, err := p.Locate(t.Context(), uidplugin.ID(order.ID))
		if err != nil || origin.Table != "orders" {
			t.Errorf("located %v, %v", origin, err)
		}
		if _, err := p.Find(t.Context(), uidplugin.ID(order.ID)); !errors.Is(err, uidplugin.ErrNoModel) || !strings.Contains(err.Error(), "uidplugin.WithModels(&Order{})") {
			t.Errorf("find: %v", err)
		}
		if log.String() == "" {
			t.Error("nothing was logged")
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || utf8.RuneCountInString(line) > 160 {
				t.Errorf("%d characters: %s", utf8.RuneCountInString(line), line)
			}
		}
	})
}
