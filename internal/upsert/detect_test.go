package upsert

import (
	"fmt"
	"testing"
)

// Each row is a statement that occurs: its dialect, what it does with existing rows, and what the application and GORM
// want to read of its result.
func TestDetect_DecidesByWhatTheStatementTells(t *testing.T) {
	t.Parallel()

	sqlite := facts{readable: true, hasKey: true, canReturn: true, onConflict: true}
	mysql := facts{readable: true, hasKey: true, mysql: true, onConflict: true, lastInsertFree: true}
	mariadb := mysql
	mariadb.canReturn = true
	for _, tt := range []struct {
		name string
		of   facts
		with func(*facts)
		want decision
	}{
		{"SQLite, one row, DoNothing", sqlite, func(f *facts) { f.single, f.doNothing = true, true }, decision{how: byRowCount, matches: true}},
		{"SQLite, one row, UpdateAll", sqlite, func(f *facts) { f.single, f.surelyUpdates = true, true }, decision{how: byReturning, matches: true, addReturning: true}},
		{"SQLite, many rows, UpdateAll", sqlite, func(f *facts) { f.surelyUpdates = true }, decision{how: byReturning, matches: true, addReturning: true}},
		{"SQLite, many rows, DoNothing", sqlite, func(f *facts) { f.doNothing = true }, decision{how: byRowCount}},
		{"SQLite, many rows, DoNothing, GORM reads back", sqlite, func(f *facts) { f.doNothing, f.returns = true, true }, decision{how: bySelect, dropReturning: true}},
		{"SQLite, many rows, update with a WHERE", sqlite, func(f *facts) { f.surelyUpdates, f.where = true, true }, decision{how: bySelect}},
		{"SQLite, many rows, update of ids", sqlite, func(f *facts) { f.surelyUpdates, f.assignsIDs = true, true }, decision{how: bySelect}},
		{"SQLite, one row, update of ids", sqlite, func(f *facts) { f.single, f.surelyUpdates, f.assignsIDs = true, true, true }, decision{how: byReturning, matches: true, addReturning: true}},
		{"SQLite, one row, the application wants the result", sqlite, func(f *facts) { f.single, f.surelyUpdates, f.wantsResult = true, true, true }, decision{how: bySelect, matches: true}},
		{"SQLite, one row, the result is read back anyway", sqlite, func(f *facts) { f.single, f.surelyUpdates, f.wantsResult, f.returns = true, true, true, true },
			decision{how: byReturning, matches: true, addReturning: true}},
		{"SQLite, a map", sqlite, func(f *facts) { f.isMap, f.single, f.surelyUpdates = true, true, true }, decision{how: bySelect}},
		{"SQLite, a field that GORM may not read", sqlite, func(f *facts) { f.single, f.surelyUpdates, f.readable = true, true, false }, decision{how: bySelect}},
		{"an expression that is not GORM's", sqlite, func(f *facts) { f.otherExpression, f.single, f.returns = true, true, true }, decision{how: bySelect, dropReturning: true}},
		{"MySQL, one row, UpdateAll", mysql, func(f *facts) { f.single, f.surelyUpdates = true, true }, decision{how: byLastInsertID, matches: true, addLastInsertID: true}},
		{"MySQL, many rows, DoNothing", mysql, func(f *facts) { f.doNothing = true }, decision{how: byLastInsertID, addLastInsertID: true}},
		{"MySQL, a map", mysql, func(f *facts) { f.isMap, f.single = true, true }, decision{how: byLastInsertID, addLastInsertID: true}},
		{"MySQL, the last insert id is in use", mysql, func(f *facts) { f.single, f.lastInsertFree = true, false }, decision{how: bySelect, matches: true}},
		{"MySQL, the application wants the result", mysql, func(f *facts) { f.single, f.wantsResult = true, true }, decision{how: bySelect, matches: true}},
		{"MySQL, INSERT IGNORE", mysql, func(f *facts) { f.onConflict, f.doNothing = false, true }, decision{how: byRowCount}},
		{"MariaDB, many rows, DoNothing, GORM reads back", mariadb, func(f *facts) { f.doNothing, f.returns = true, true },
			decision{how: byReturning, matches: true, updateKey: true, addReturning: true}},
		{"MariaDB, many rows, UpdateAll, GORM reads back", mariadb, func(f *facts) { f.surelyUpdates, f.returns = true, true },
			decision{how: byReturning, matches: true, addReturning: true}},
		{"MariaDB, INSERT IGNORE, GORM reads back", mariadb, func(f *facts) { f.onConflict, f.doNothing, f.returns = false, true, true },
			decision{how: bySelect, dropReturning: true}},
		{"MariaDB, a map, GORM reads back", mariadb, func(f *facts) { f.isMap, f.returns = true, true }, decision{how: bySelect, dropReturning: true}},
		{"MariaDB, no primary key, GORM reads back", mariadb, func(f *facts) { f.doNothing, f.returns, f.hasKey = true, true, false },
			decision{how: byReturning, matches: true, addReturning: true}},
	} {
		f := tt.of
		tt.with(&f)
		if got := detect(f); got != tt.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// Whatever the facts, a statement is changed in one way at most, ids that GORM would assign to other rows never come
// back, and a result that the application asked for is left to it.
func TestDetect_HoldsForAllFacts(t *testing.T) {
	t.Parallel()

	const bits = 13
	for n := range 1 << bits {
		bit := func(i int) bool { return n&(1<<i) != 0 }
		f := facts{
			mysql: bit(0), isMap: bit(1), single: bit(2), readable: bit(3), hasKey: bit(4), onConflict: bit(5), otherExpression: bit(6),
			doNothing: bit(7), where: bit(8), surelyUpdates: bit(9), returns: bit(10), wantsResult: bit(11), lastInsertFree: bit(12), canReturn: true,
		}
		d := detect(f)
		wrong := ""
		switch {
		case d.addReturning && d.dropReturning || d.addReturning && d.addLastInsertID || d.dropReturning && d.addLastInsertID:
			wrong = "two changes"
		case d.addReturning != (d.how == byReturning) || d.addLastInsertID != (d.how == byLastInsertID):
			wrong = "the change does not serve the detection"
		case d.addReturning && (f.isMap || !f.readable):
			wrong = "GORM cannot read the fields back"
		case f.returns && !d.addReturning && !d.dropReturning:
			wrong = "GORM assigns what comes back to other rows"
		case f.wantsResult && !f.returns && d.how != bySelect && d.how != byRowCount:
			wrong = "the application's result is taken"
		case f.otherExpression && d != decision{how: bySelect, dropReturning: f.returns}:
			wrong = "an unknown expression is changed"
		}
		if wrong != "" {
			t.Fatalf("%s: %s makes %s", wrong, fmt.Sprintf("%+v", f), fmt.Sprintf("%+v", d))
		}
	}
}
