package follow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Formerly the trigger chose its gate twice for a row, so it found none if the closer took its lock in between, and
// refused the row.
func TestTrigger_RefusesNoFreshRowWhileTheGatesChange(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		lock := userLockOf(t, e.db)
		ctx, stop := context.WithCancel(t.Context())
		changes := make(chan error)
		go func() {
			changes <- e.db.Connection(func(c *gorm.DB) (err error) {
				for ctx.Err() == nil && err == nil {
					err = errors.Join(c.Exec("DO GET_LOCK("+lock+", 1)").Error, c.Exec("DO RELEASE_LOCK("+lock+")").Error)
				}
				return err
			})
		}()
		first := e.id(t, 0)
		for i := range int64(30) {
			rows := make([]event, 1000)
			for j := range rows {
				rows[j].ID = first + i*2000 + int64(j)
			}
			if err := e.db.Create(&rows).Error; err != nil {
				t.Errorf("a batch from %d: %v", rows[0].ID, err)
			}
			for j := range int64(50) {
				if err := e.db.Create(&event{ID: first + i*2000 + 1000 + j}).Error; err != nil {
					t.Errorf("%d: %v", first+i*2000+1000+j, err)
				}
			}
		}
		stop()
		testkit.Must(t, <-changes)
	}, "mysql", "mariadb")
}

// userLockOf returns an expression for the name of the user-level lock with which the trigger of events chooses its
// gate.
func userLockOf(t *testing.T, db *gorm.DB) string {
	t.Helper()
	var definition string
	testkit.Must(t, db.Raw("SELECT ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()").Scan(&definition).Error)
	_, lock, ok := strings.Cut(definition, "IS_FREE_LOCK(")
	lock, _, end := strings.Cut(lock, "DATABASE()")
	if !ok || !end {
		t.Fatalf("no lock in %s", definition)
	}
	return lock + "DATABASE()))"
}

// The proof needs the gate first: a writer that has waited for its gate must see a mark that was raised meanwhile,
// whatever its isolation level is and wherever its snapshot comes from.
func TestTrigger_ReadsTheMarkAfterItsGate(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
			for _, diverted := range []bool{false, true} {
				e.waitsAtItsGate(t, level, diverted)
			}
		}
	}, "mysql", "mariadb", "postgres")
}

// waitsAtItsGate lets a writer wait at a gate while its mark is raised above the row. diverted is for the second gate.
func (e followed) waitsAtItsGate(t *testing.T, level string, diverted bool) {
	t.Helper()
	id := e.id(t, 0)
	testkit.Must(t, e.db.Connection(func(closer *gorm.DB) error {
		raise := e.passGates(t, closer, diverted)
		refused := make(chan error)
		go func() { refused <- e.insertAfterASnapshot(level, id) }()
		testkit.Eventually(t, "the writer waits at its gate", time.Minute, func() bool {
			waiting := 0
			testkit.Must(t, e.db.Raw(map[string]string{
				"postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE 'INSERT INTO events%' AND query LIKE '%" + fmt.Sprint(id) + "%'",
				"mysql":    "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%" + fmt.Sprint(id) + "%'",
			}[e.db.Name()]).Scan(&waiting).Error)
			time.Sleep(110 * time.Millisecond) // InnoDB renews its list when nobody has read it for 100 ms
			return waiting > 0
		})
		raise(id + 1)
		err := <-refused
		if err == nil || !strings.Contains(err.Error(), "uid_follow: too late: the id "+fmt.Sprint(id)+" is below "+fmt.Sprint(id+1)) {
			t.Errorf("%s, diverted %t: %v", level, diverted, err)
		}
		return nil
	}))
}

// passGates takes the gates of the table on a connection. raise raises the mark and leaves them.
func (e followed) passGates(t *testing.T, closer *gorm.DB, diverted bool) (raise func(mark int64)) {
	t.Helper()
	run := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			testkit.Must(t, closer.Exec(s).Error)
		}
	}
	trigger := triggerOf(t, e)
	if e.db.Name() == "postgres" {
		gate := fmt.Sprintf("(%d + 4 * '%s_mark'::regclass::oid::bigint)", int64(0x7569)<<48, trigger)
		run("BEGIN", "SELECT pg_advisory_xact_lock(1 + "+gate+")", "SELECT pg_advisory_xact_lock(2 + "+gate+")")
		return func(mark int64) {
			t.Helper()
			run(fmt.Sprintf("SELECT setval('%s_mark', %d)", trigger, mark), "COMMIT")
		}
	}
	if diverted {
		run("DO GET_LOCK(" + userLockOf(t, e.db) + ", 1)")
	}
	run("BEGIN", "SELECT * FROM UID_FOLLOW_GATE FOR UPDATE")
	return func(mark int64) {
		t.Helper()
		raise := fmt.Sprintf("UPDATE UID_FOLLOW_GATE SET MARK = %d", mark)
		if e.f == "mariadb" {
			raise = fmt.Sprintf("SELECT SETVAL(%s_mark, %d, 0)", trigger, mark)
		}
		run(raise, "COMMIT")
		if diverted {
			run("DO RELEASE_LOCK(" + userLockOf(t, e.db) + ")")
		}
	}
}

// insertAfterASnapshot inserts a row in a transaction that has taken its snapshot before.
func (e followed) insertAfterASnapshot(level string, id int64) error {
	return e.db.Connection(func(c *gorm.DB) error {
		c = c.Session(&gorm.Session{}) // so that it goes on after an error
		begin := []string{"SET TRANSACTION ISOLATION LEVEL " + level, "BEGIN"}
		if e.db.Name() == "postgres" {
			begin = []string{"BEGIN ISOLATION LEVEL " + level}
		}
		for _, s := range append(begin, "SELECT COUNT(*) FROM "+e.db.Statement.Quote("UID_FOLLOW")) {
			if err := c.Exec(s).Error; err != nil {
				return err
			}
		}
		err := c.Exec(fmt.Sprintf("INSERT INTO events (id) VALUES (%d)", id)).Error
		return errors.Join(err, c.Exec("ROLLBACK").Error)
	})
}
