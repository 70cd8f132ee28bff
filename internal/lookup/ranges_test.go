package lookup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm/schema"
)

// A span that ends now has no upper bound: ids may be stamped ahead of the clock. Formerly the rows that were created
// last, which a caller most likely looks for, were missed.
func TestPluginCreatedBetween_FindsRowsThatAreStampedAhead(t *testing.T) {
	t.Parallel()

	clock := testkit.NewClock(plugintest.Noon)
	db, p := openParts(t, uidplugin.WithClock(clock.Now))
	before, ahead := stampedAt(t, 9, plugintest.Noon.Add(-30*time.Minute)), stampedAt(t, 9, plugintest.Noon.Add(8*time.Second))
	must(t, db.Create(&[]plugintest.Part{{ID: before}, {ID: ahead}}).Error)
	for _, tt := range []struct {
		name     string
		from, to time.Duration
		want     int
	}{
		{"until now", -time.Hour, 0, 2},
		{"until the moment before the query", -time.Hour, -50 * time.Millisecond, 2},
		{"until later", -time.Hour, time.Hour, 2},
		{"until the end of time", -time.Hour, 200 * 365 * 24 * time.Hour, 2},
		{"from a moment ago", -time.Millisecond, 0, 1},
		{"in the past", -time.Hour, -time.Minute, 1},
		{"in the past, without rows", -20 * time.Minute, -time.Minute, 0},
	} {
		var parts []plugintest.Part
		must(t, db.Scopes(p.CreatedBetween(plugintest.Noon.Add(tt.from), plugintest.Noon.Add(tt.to))).Find(&parts).Error)
		if len(parts) != tt.want {
			t.Errorf("%s: %d rows, want %d", tt.name, len(parts), tt.want)
		}
	}
	testkit.IsError(t, db.Scopes(p.CreatedBetween(plugintest.Noon, plugintest.Noon.Add(-time.Second))).Find(&[]plugintest.Part{}).Error, generator.ErrLayout)
}

// A poller asks for what was created since its last round. Formerly, with a tick longer than its interval, it got an
// error in most rounds.
func TestPluginCreatedBetween_ASpanWithinATickHasNoRows(t *testing.T) {
	t.Parallel()

	clock := testkit.NewClock(plugintest.Noon)
	db := plugintest.Open(t, uidplugin.WithClock(clock.Now), uidplugin.WithLayout(generator.JSSafeLayout()))
	plugintest.Migrate(t, db, &plugintest.Part{})
	ledger := testkit.NewLedger(t)
	p := uidplugin.From(db)
	for i := range 40 {
		must(t, db.Create(&plugintest.Part{Name: fmt.Sprint(i)}).Error)
		clock.Add(300 * time.Millisecond)
	}
	clock.Add(time.Hour)
	const round = 300 * time.Millisecond
	for at := plugintest.Noon.Add(-time.Second); at.Before(plugintest.Noon.Add(time.Minute)); at = at.Add(round) {
		var parts []plugintest.Part
		must(t, db.Scopes(p.CreatedBetween(at, at.Add(round))).Find(&parts).Error)
		for _, r := range parts {
			ledger.Add("parts", r.ID)
		}
	}
	if ledger.Len() != 40 {
		t.Errorf("%d of 40 rows were found", ledger.Len())
	}
	must(t, db.Scopes(p.CreatedBetween(plugintest.Noon, plugintest.Noon)).Find(&[]plugintest.Part{}).Error)
}

// The clock of the process is set back, which the generators do not follow. Formerly "until now" was until an hour ago
// for them, and missed every row of the last hour.
func TestPluginCreatedBetween_FindsRowsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()

	clock := testkit.NewClock(plugintest.Noon)
	db, p := openParts(t, uidplugin.WithClock(clock.Now))
	must(t, db.Create(&plugintest.Part{}).Error)
	now := clock.Add(-time.Hour)
	must(t, db.Create(&plugintest.Part{}).Error)
	var parts []plugintest.Part
	must(t, db.Scopes(p.CreatedBetween(now.Add(-time.Hour), now)).Find(&parts).Error)
	if len(parts) != 2 {
		t.Errorf("%d rows, want 2", len(parts))
	}
}

// An id carries the start of its tick. Formerly a span that began within the tick left it to the span before, so a row
// that was created right after the start was missed. Spans that follow one another still have each row once.
func TestPluginCreatedBetween_FindsRowsCreatedRightAfterItsStart(t *testing.T) {
	t.Parallel()

	start := plugintest.Noon.Add(400 * time.Microsecond)
	clock := testkit.NewClock(start.Add(-10 * time.Millisecond))
	db, p := openParts(t, uidplugin.WithClock(clock.Now))
	right := stampedAt(t, 9, start.Add(100*time.Microsecond))
	must(t, db.Create(&[]plugintest.Part{{ID: right}, {ID: stampedAt(t, 9, start.Add(time.Millisecond))}}).Error)
	find := func(from, to time.Time) (ids []int64) {
		t.Helper()
		must(t, db.Model(&plugintest.Part{}).Scopes(p.CreatedBetween(from, to)).Order("id").Pluck("id", &ids).Error)
		return ids
	}
	if ids := find(start, start.Add(time.Hour)); len(ids) != 2 || ids[0] != right {
		t.Errorf("until later: %v", ids)
	}
	clock.Add(time.Hour)
	cut := start.Add(900 * time.Microsecond) // in the next tick
	before, between, after := find(plugintest.Noon.Add(-time.Second), start), find(start, cut), find(cut, start.Add(time.Minute))
	if len(before) != 0 || len(between) != 1 || between[0] != right || len(after) != 1 {
		t.Errorf("%v, %v, %v", before, between, after)
	}
	first, last, err := p.Range(start, cut)
	if err != nil || uidplugin.ID(right) < first || uidplugin.ID(right) > last {
		t.Errorf("Range = %d, %d, %v", first, last, err)
	}
	if next, _, err := p.Range(cut, cut.Add(time.Second)); err != nil || next != last+1 {
		t.Errorf("the next range begins with %d, not %d: %v", next, last+1, err)
	}
	_, _, err = p.Range(start, start.Add(100*time.Microsecond)) // a span within a tick
	testkit.IsError(t, err, generator.ErrLayout, "one tick of 1ms", "12:00:00.0004Z", "12:00:00.0005Z")
}

// A query into a number or maps does not name the model. Formerly the error was GORM's, with the address of the
// variable.
func TestPluginCreatedBetween_AsksForTheModel(t *testing.T) {
	t.Parallel()

	db, p := openParts(t)
	between := p.CreatedBetween(plugintest.Noon, plugintest.Noon.Add(time.Hour))
	var n int64
	var maps []map[string]any
	for name, err := range map[string]error{
		"*int64":                     db.Table("parts").Scopes(between).Count(&n).Error,
		"*[]map[string]interface {}": db.Table("parts").Scopes(between).Find(&maps).Error,
	} {
		testkit.IsError(t, err, schema.ErrUnsupportedDataType, "CreatedBetween needs the model of the query: add Model(&T{})", name)
		if strings.Contains(fmt.Sprint(err), "0x") {
			t.Errorf("%s: an address: %v", name, err)
		}
	}
	must(t, db.Table("parts").Model(&plugintest.Part{}).Scopes(between).Count(&n).Error)
}
