package follow_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

type parcel struct {
	ID   uidplugin.ID
	Town string
}

func (parcel) TableName() string { return "main.parcels" } // main is the schema of each database of SQLite

// GORM's statements have the name of a table without its schema. Metrics must not count refused rows for another table
// than the one that is followed.
func TestTooLate_IsCountedForTheTableOfASchema(t *testing.T) {
	t.Parallel()
	db := testkit.Engines()[0].New(t).Open(t, nil)
	testkit.Must(t, db.Exec("CREATE TABLE parcels (id BIGINT PRIMARY KEY, town TEXT)").Error)
	p := harness.Use(t, db, uidplugin.WithModels(&parcel{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &parcel{}, follow.WithSlack(slack)))
	id, err := p.NextID(t.Context(), &parcel{})
	testkit.Must(t, err)
	passMark(t, db, &parcel{})
	testkit.IsError(t, db.Create(&parcel{ID: id}).Error, follow.ErrTooLate, "main.parcels is followed")
	add(t, db, &parcel{Town: "Ely"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, err := range follow.Rows[parcel](ctx, db, 0) {
		testkit.Must(t, err)
		if s := follow.Stats(db); len(s) != 1 || s[0].Table != "main.parcels" || s[0].TooLate < 1 || s[0].Followers != 1 {
			t.Errorf("the followed tables are %+v", s)
		}
		break
	}
}
