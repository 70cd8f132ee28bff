package follow_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

type crate struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Tags []string     `gorm:"serializer:json"`
}

// A row that cannot be read is named in the error. Formerly nobody knew which row it was, and it held up the rows
// before it that were read together with it.
func TestFollow_NamesTheRowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db, uidplugin.WithModels(&crate{}))
		testkit.Must(t, uidplugin.From(db).AutoMigrate(&crate{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &crate{}))
		crates := make([]crate, 20)
		add(t, db, &crates)
		var want, got []uidplugin.ID
		for _, p := range crates {
			want = append(want, p.ID)
		}
		bad := want[13]
		spoil := func(tags string) {
			testkit.Must(t, db.Exec("UPDATE crates SET tags = ? WHERE id = ?", tags, bad).Error)
		}
		spoil("no json")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errors := 0
		for p, err := range follow.Rows[crate](ctx, db, 0) {
			if err == nil {
				if got = append(got, p.ID); len(got) == len(want) {
					break
				}
				continue
			}
			if !slices.Equal(got, want[:13]) || !strings.Contains(err.Error(), "the row "+bad.String()+" cannot be read") {
				t.Fatalf("%v came, then %v", got, err)
			}
			if errors++; errors == 2 {
				spoil("[]")
			}
		}
		if !slices.Equal(got, want) || errors != 2 {
			t.Errorf("%v came instead of %v, with %d errors", got, want, errors)
		}
	})
}
