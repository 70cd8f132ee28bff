package follow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// regional opens a database of SQLite whose letters are followed, in a region of several if options say so. Worker id 901
// is of slot 901, which is of region 1.
func regional(t *testing.T, options ...uidplugin.Option) (*gorm.DB, *testkit.Wire) {
	t.Helper()
	db, wire := testkit.OpenWire(t, testkit.Engines()[0].New(t))
	p := harness.Use(t, db, append(options, uidplugin.WithModels(&letter{}))...)
	testkit.Must(t, p.AutoMigrate(&sender{}, &letter{}, &stamp{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &letter{}, follow.WithSlack(slack)))
	for _, statement := range []string{
		`INSERT INTO WORKER_SLOT (ID, LAYOUT, REUSABLE, FENCE, VERSION, HOLDER, SEEN_TICK, APPLICATION, HOST_NAME, PORT, REGION)
			VALUES (901, '', 0, 0, 0, '', 0, '', '', '', 1)`,
		`INSERT INTO WORKER_NODE (ID, HOST_NAME, PORT, TYPE, LAUNCH_DATE, SLOT) VALUES (901, '', '', 0, CURRENT_DATE, 901)`,
	} {
		testkit.Must(t, db.Exec(statement).Error)
	}
	return db, wire
}

// idOf returns an id of a worker id, an hour old.
func idOf(t *testing.T, worker int64, age time.Duration) uidplugin.ID {
	t.Helper()
	id, err := generator.DefaultLayout().Compose(generator.Parts{Time: time.Now().Add(-age), WorkerID: worker})
	testkit.Must(t, err)
	return uidplugin.ID(id)
}

// Rows of another region come by replication, so some come after the mark has passed their ids. A follower therefore leaves
// all of them out, and goes on when it has read nothing else.
func TestFollow_LeavesOutRowsOfOtherRegions(t *testing.T) {
	t.Parallel()
	db, wire := regional(t, uidplugin.WithRegion(0, 2))
	letters := []letter{{ID: 7}} // a key from before the plugin
	for i := range 1200 {        // more than Follow reads at a time
		letters = append(letters, letter{ID: idOf(t, 901, time.Hour-time.Duration(i)*time.Millisecond)})
	}
	unknown := idOf(t, 1000, 30*time.Minute) // its worker id is replicated later
	letters = append(letters, letter{ID: unknown}, letter{ID: idOf(t, 1001, 20*time.Minute)})
	testkit.Must(t, db.CreateInBatches(letters, 100).Error)
	own := letter{Town: "Ely"}
	add(t, db, &own)
	wire.Take()
	var got []uidplugin.ID
	for _, l := range collect[letter](t, db, 0, 3) {
		got = append(got, l.ID)
	}
	if want := []uidplugin.ID{7, unknown, own.ID}; !slices.Equal(got, want) {
		t.Errorf("%v came, want %v", got, want)
	}
	if n := lookups(wire); n == 0 || n > 3 {
		t.Errorf("%d statements read the regions of worker ids", n)
	}
}

// A torn letter is a letter that cannot be read while its town is torn off.
type torn struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Town string
}

func (torn) TableName() string { return "letters" }

func (l *torn) AfterFind(*gorm.DB) error {
	if l.Town == "torn" {
		return errors.New("the town is torn off")
	}
	return nil
}

// A row cannot be read, and the one before it is of another region, so it is left out. With Into the cursor passes a
// row that is left out only together with a later row, so this row is fetched with success again and again. The log has
// the error once.
func TestConsume_IntoLogsOnceThatARowAfterOneOfAnotherRegionCannotBeRead(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	db, _ := regional(t, uidplugin.WithRegion(0, 2), uidplugin.WithLogger(log.Logger()))
	into, wire := testkit.OpenWire(t, testkit.Engines()[0].New(t))
	unreadable := letter{Town: "torn"}
	testkit.Must(t, db.Create(&letter{ID: idOf(t, 901, time.Hour)}).Error)
	add(t, db, &unreadable)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int64
	wire.Set(func(c *testkit.Crossing) error {
		if c.Is("SELECT LAST_ID") && reads.Add(1) == 6 { // after some errors
			if err := db.Model(&unreadable).Update("town", "Ely").Error; err != nil {
				t.Error(err)
			}
		}
		return c.Run()
	})
	err := follow.Consume(ctx, db, "post", func(_ *gorm.DB, l *torn) error {
		if l.ID != unreadable.ID {
			t.Errorf("%d came", l.ID)
		}
		cancel()
		return nil
	}, follow.Into(into))
	testkit.IsError(t, err, context.Canceled)
	log.SaysOnce(t, "what=\"fetch rows\"")
	log.SaysOnce(t, "after=\"fetch rows\"")
}

// A registry that is not divided has no other regions to ask for.
func TestFollow_AsksForNoRegionsOfAnUndividedRegistry(t *testing.T) {
	t.Parallel()
	db, wire := regional(t)
	testkit.Must(t, db.Create(&[]letter{{ID: idOf(t, 901, time.Hour)}, {ID: idOf(t, 1001, time.Hour)}}).Error)
	wire.Take()
	collect[letter](t, db, 0, 2)
	if n := lookups(wire); n > 0 {
		t.Errorf("%d statements read the regions of worker ids", n)
	}
}

// lookups returns the number of statements that have read worker ids.
func lookups(wire *testkit.Wire) (n int) {
	for _, statement := range wire.Take() {
		if strings.Contains(statement, "WORKER_NODE N JOIN") {
			n++
		}
	}
	return n
}
