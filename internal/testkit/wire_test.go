package testkit

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A wire that lost or repeated anything by itself would make other tests fail without a fault.
func TestWire_PassesEverythingOn(t *testing.T) {
	t.Parallel()

	w := &Wire{}
	db := w.Open(t, SQLite{})
	Must(t, db.Exec(`CREATE TABLE t (a INT)`).Error)
	tx := db.Begin()
	Must(t, tx.Exec(`INSERT INTO "t" VALUES (?)`, 1).Error)
	Must(t, tx.Commit().Error)
	tx = db.Begin()
	Must(t, tx.Exec(`INSERT INTO t VALUES (2)`).Error)
	Must(t, tx.Rollback().Error)
	var all []int
	Must(t, db.Raw(`SELECT a FROM t`).Scan(&all).Error)
	if !slices.Equal(all, []int{1}) {
		t.Errorf("rows %v", all)
	}
	want := []string{"CREATE TABLE t (a INT)", "BEGIN", "INSERT INTO t VALUES (?)", "COMMIT", "BEGIN", "INSERT INTO t VALUES (2)", "ROLLBACK", "SELECT a FROM t"}
	got := w.Take()
	if i := slices.Index(got, want[0]); i < 0 || !slices.Equal(got[i:], want) { // GORM asks for the version first
		t.Errorf("statements %q", got)
	}
}

// Each fault does what its name says, or the tests that use it show nothing.
func TestWire_MakesFaults(t *testing.T) {
	t.Parallel()

	const insert = `INSERT INTO t VALUES (1)`
	for _, tt := range []struct {
		name string
		hook func(*Crossing) error
		err  error
		rows int
	}{
		{"lost", func(c *Crossing) error { return ErrLost }, ErrLost, 0},
		{"answer lost", func(c *Crossing) error { return errors.Join(c.Run(), ErrLost) }, ErrLost, 1},
		{"twice", func(c *Crossing) error { return errors.Join(c.Run(), c.Run()) }, nil, 2},
		{"unchanged", func(c *Crossing) error { return ErrUnchanged }, nil, 0},
		{"late", func(c *Crossing) error { c.Later(time.Second); return ErrLost }, ErrLost, 1},
		{"delayed", func(c *Crossing) error { return errors.Join(c.Sleep(time.Second), c.Run()) }, nil, 1},
	} {
		for _, where := range []string{"INSERT", "COMMIT"} {
			if where == "COMMIT" && (tt.name == "twice" || tt.name == "unchanged") {
				continue
			}
			t.Run(tt.name+" "+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := &Wire{}
					db := w.Open(t, SQLite{})
					Must(t, db.Exec(`CREATE TABLE t (a INT)`).Error)
					w.Set(func(c *Crossing) error {
						if c.Is(where) {
							return tt.hook(c)
						}
						return c.Run()
					})
					var err error
					if where == "COMMIT" {
						tx := db.Begin()
						Must(t, tx.Exec(insert).Error)
						err = tx.Commit().Error
					} else {
						err = db.Exec(insert).Error
					}
					if !errors.Is(err, tt.err) {
						t.Errorf("the answer is %v", err)
					}
					count := func() (n int) {
						Must(t, db.Raw(`SELECT COUNT(*) FROM t`).Scan(&n).Error)
						return n
					}
					if n := count(); tt.name == "late" && n != 0 {
						t.Errorf("%d rows before it was time", n)
					}
					time.Sleep(2 * time.Second)
					if n := count(); n != tt.rows {
						t.Errorf("%d rows, want %d", n, tt.rows)
					}
				})
			})
		}
	}
}
