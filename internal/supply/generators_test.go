package supply_test

import (
	"context"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment" // wing: segment
	"gorm.io/gorm"
)

var must = testkit.Must

// sheet has ids of all generators.
type sheet struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Reads   int64 `gorm:"uid:snowflake"`
	Paired  int64 `gorm:"uid:paired"`
	Segment int64 `gorm:"uid:segment"` // wing: segment
	Mine    int64 `gorm:"uid:mine"`
	Even    int64 `gorm:"uid:even"`
}

func TestGenerators_InOneModel(t *testing.T) {
	t.Parallel()

	evens := map[string]*plugintest.Numbers{}
	made := 0
	options := []uidplugin.Option{
		uidplugin.WithGenerator("Mine", func(c generator.Config) (generator.Renewable, error) {
			made++
			if c.Table != "sheets" || c.OnLow == nil || c.Now == nil {
				t.Errorf("%+v", c)
			}
			return generator.NewSnowflake(generator.SnowflakeConfig{Layout: c.Layout, Lease: c.Leases[0], OnLow: c.OnLow, Now: c.Now, RandomStart: 10})
		}),
		uidplugin.WithSource("even", func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error) {
			if err := db.Exec("SELECT 1").Error; err != nil {
				return nil, err
			}
			evens[table] = &plugintest.Numbers{Step: 2}
			return evens[table], nil
		}),
		uidplugin.WithSegments(segment.Config{Step: 10}), // wing: segment
	}
	db := plugintest.Open(t, options...)
	plugintest.Migrate(t, db, &sheet{})
	p := uidplugin.From(db)
	sheets := make([]sheet, 25)
	must(t, db.Create(&sheets).Error)
	workers := map[int64]string{}
	ledger := testkit.NewLedger(t)
	isNumber := func(got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("number %d, want %d", got, want)
		}
	}
	for i, s := range sheets {
		isNumber(int(s.Segment), i+1) // wing: segment
		isNumber(int(s.Even), 2*i+2)
		for name, id := range map[string]int64{"ID": s.ID, "Reads": s.Reads, "Paired": s.Paired, "Mine": s.Mine} {
			ledger.Add(name, id)
			l, err := p.Locate(t.Context(), uidplugin.ID(id))
			if err != nil || l.Table != "sheets" {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
			if other, known := workers[l.WorkerID]; known && other != name {
				t.Errorf("%s and %s have the worker id %d", name, other, l.WorkerID)
			}
			workers[l.WorkerID] = name
		}
		for _, id := range []int64{
			s.Segment, // wing: segment
			s.Even,
		} {
			testkit.IsError(t, plugintest.Second(p.Decode(uidplugin.ID(id))), uidplugin.ErrNotDecodable)
			testkit.IsError(t, plugintest.Second(p.Locate(t.Context(), uidplugin.ID(id))), uidplugin.ErrNotDecodable)
		}
	}
	if made != 1 || len(evens) != 1 {
		t.Errorf("made %d times, %d", made, len(evens))
	}
	for _, s := range p.Stats().Tables {
		if none := s.Generator == "segment" || s.Generator == "even"; none != (len(s.WorkerIDs) == 0) {
			t.Errorf("%+v", s)
		}
	}
	testkit.MustClose(t, p)
	if !evens["sheets"].Closed.Load() {
		t.Error("a source was not closed")
	}
	testkit.IsError(t, db.Create(&sheet{}).Error, uidplugin.ErrClosed)
}

// With one worker id for all tables ids resolve to their process.
func TestGenerators_OneWorkerIDServesAllTables(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithOneWorkerID(), uidplugin.WithLayout(generator.JSSafeLayout()))
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{})
	p := uidplugin.From(db)
	a, b := plugintest.Part{}, plugintest.Article{}
	must(t, db.Create(&a).Error)
	must(t, db.Create(&b).Error)
	la, err := p.Locate(t.Context(), uidplugin.ID(a.ID))
	must(t, err)
	lb, err := p.Locate(t.Context(), b.ID)
	must(t, err)
	if la.WorkerID != lb.WorkerID || la.Table != "" || la.Session.Host == "" || int64(b.ID) > 1<<53-1 {
		t.Errorf("%+v, %+v", la, lb)
	}
	testkit.IsError(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(a.ID))), uidplugin.ErrNoModel)
	if s := p.Stats().Tables; len(s) != 1 || s[0].Table != "*" {
		t.Errorf("%+v", s)
	}
}
