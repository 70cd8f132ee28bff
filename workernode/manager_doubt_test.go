package workernode_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// loseCommit loses the answer of the next COMMIT after an INSERT into WORKER_NODE, once.
func (p *process) loseCommit() (lost *bool) {
	lost = new(bool)
	adds := false
	p.wire.Set(func(c *testkit.Crossing) error {
		adds = adds || c.Is("INSERT INTO WORKER_NODE") && c.Inside
		if *lost || !adds || c.SQL != "COMMIT" {
			return c.Run()
		}
		*lost = true
		p.wire.Take()
		return errors.Join(c.Run(), testkit.ErrLost)
	})
	return lost
}

// first returns the first statement that begins with any of the texts, or all if none does.
func first(statements []string, texts ...string) string {
	for _, s := range statements {
		for _, text := range texts {
			if strings.HasPrefix(s, text) {
				return s
			}
		}
	}
	return strings.Join(statements, "\n")
}

// Nobody knows whether worker ids were added if the answer of the COMMIT was lost. So the process reads the row of its
// slot before it changes it: rule 2 of the protocol. Without that the next change compares a version that may be old.
func TestManager_ReadsTheSlotAfterAnAddWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 1)
		lost := p.loseCommit()
		p.use(t, table("items"), 1)
		sent := p.wire.Take()
		next := first(sent, "UPDATE WORKER_SLOT", "SELECT ID, FENCE, VERSION, HOLDER, SEEN_TICK FROM WORKER_SLOT WHERE ID")
		if !*lost || !strings.HasPrefix(next, "SELECT") {
			t.Errorf("an answer was lost: %t; then the process sent %s", *lost, next)
		}
		w.check()
	})
}

// Within one tick an added worker id changes only VERSION, so no session follows that reads the slot's rows. The
// process has to read them on its own, or it does not know the worker id for ten minutes.
func TestManager_FindsAWorkerIDWhoseAddHadNoAnswer(t *testing.T) {
	bubbleWith(t, ticking(time.Second), func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
		p.use(t, table("orders"), 1)
		sessions, lost := p.Stats().Sessions, p.loseCommit()
		p.use(t, table("items"), 1)
		time.Sleep(10 * time.Second)
		s := p.Stats()
		if !*lost || s.Sessions != sessions {
			t.Fatalf("an answer was lost: %t; a session began: %+v", *lost, s)
		}
		if n := len(w.nodes()); n != s.WorkerIDs {
			t.Errorf("WORKER_NODE has %d rows of the slot, and the process knows %d", n, s.WorkerIDs)
		}
		w.check()
	})
}

// The answer of an add is lost, and its caller gets an error. The reserved worker id has a row now, so the next table
// needs another. Formerly the process tried to insert the same one, and took the failure for the work of another
// program.
func TestManager_DoesNotInsertAReservedWorkerIDTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 1)
		time.Sleep(200 * time.Millisecond) // so that FENCE moves
		lost := p.loseCommit()
		if _, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil); err == nil || !*lost {
			t.Fatalf("an answer was lost: %t; %v", *lost, err)
		}
		time.Sleep(5 * time.Second)
		p.wire.Take()
		p.use(t, table("users"), 1)
		inserts := 0
		for _, s := range p.wire.Take() {
			if strings.HasPrefix(s, "INSERT INTO WORKER_NODE") {
				inserts++
			}
		}
		if inserts != 1 {
			t.Errorf("%d INSERTs for one table", inserts)
		}
		w.check()
	})
}

// Operators look at Health when the database is back. Formerly it named the outage until the next renewal.
func TestManager_ShowsARecoveryAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(time.Minute))
		p.use(t, table("orders"), 1)
		p.wire.Set(func(*testkit.Crossing) error { return errors.New("odd") })
		time.Sleep(25 * time.Second)
		if s := p.Stats(); s.LastError == nil {
			t.Fatalf("%+v", s)
		}
		p.wire.Set(nil)
		renewals := p.Stats().Renewals + p.Stats().Sessions
		for p.Stats().Renewals+p.Stats().Sessions == renewals {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		if s := p.Stats(); s.LastError != nil || !s.Since.IsZero() {
			t.Errorf("100 ms after a renewal: %v", s.LastError)
		}
		w.logs("is renewed again")
	})
}

// When a process finds another id space, its slot is lost for all callers at once. A caller that asks next must not get
// an unused worker id of that slot, because no such id resolves.
func TestManager_GivesNothingOfItsSlotInAnotherIDSpace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		leases := p.leases(table("orders"), table("items"))
		p.attach(leases[0])
		leases[1].Release()
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "ID_SPACE" = 'other'`)
		for _, x := range []string{"users", "items"} {
			p.refused(time.Minute, table(x), workernode.ErrTable, "another id space", "restart")
			if s := p.Stats(); s.ID != 0 || s.WorkerIDs != 0 || !errors.Is(s.LastError, workernode.ErrTable) {
				t.Errorf("%s: %+v", x, s)
			}
		}
	})
}
