package consume_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// keepConsuming runs a process until the context ends, and again after it was killed. Until faults end, it is killed or
// stands still at times.
func (h *hostile) keepConsuming(ctx, faults context.Context, task hostileTask) {
	life := func() time.Duration { return 2*time.Second + rand.N(6*time.Second) }
	h.Keep(ctx, "hostile consumers", func() any { return task }, func(line string) { h.Note(line, 1) }, life, func(p *testkit.Process) bool {
		switch {
		case faults.Err() != nil:
			return false
		case rand.IntN(2) == 0:
			h.hit("kill -9", p.PID())
			p.Kill()
			h.Note("process killed", 1)
			return true
		}
		h.pause(p)
		return false
	})
}

// pause stops a process for longer than the idle limit. SQLite has none.
func (h *hostile) pause(p *testkit.Process) {
	length := (idleFor + 2) * time.Second
	if h.Relay == nil {
		length = rand.N(time.Second)
	}
	h.hit("SIGSTOP", p.PID())
	_ = p.Signal(syscall.SIGSTOP)
	time.Sleep(length)
	_ = p.Signal(syscall.SIGCONT)
	h.Note("process stopped", 1)
}

// hit remembers a fault of the process that works for a consumer.
func (h *hostile) hit(what string, pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for consumer, last := range h.last {
		if last.PID == pid {
			h.fault[consumer] = hostileFault{what, pid, time.Now()}
		}
	}
}

// watch measures how long it takes until another process works after a fault.
func (h *hostile) watch(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		for _, consumer := range hostileConsumers {
			var last hostileEffect
			err := h.db.Where("consumer = ? AND kind = ?", consumer, "handled").Order("n DESC").Limit(1).Find(&last).Error
			if err != nil {
				continue
			}
			h.mu.Lock()
			if f, ok := h.fault[consumer]; ok && last.N > h.last[consumer].N {
				if last.PID != f.pid {
					h.longest[f.what] = max(h.longest[f.what], time.Since(f.at))
				}
				delete(h.fault, consumer)
			}
			h.last[consumer] = last
			h.mu.Unlock()
		}
	}
}

// excuse forgets the faults of consumers that stand still for another reason.
func (h *hostile) excuse(consumers ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, consumer := range consumers {
		delete(h.fault, consumer)
	}
}

// makeFaults ends connections, and in the long form kills the server.
func (h *hostile) makeFaults(ctx context.Context) {
	h.Disturb(ctx, 4*time.Millisecond, func() bool {
		end := rand.IntN(2) == 0
		if end {
			h.endConnections()
		}
		return end
	}, func() { h.excuse(hostileConsumers...) })
}

// endConnections makes the server end some connections.
func (h *hostile) endConnections() {
	list, end := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()", "KILL %d"
	if h.Database.Name == "postgres" {
		list = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
		end = "SELECT pg_terminate_backend(%d)"
	}
	var ids []int64
	_ = h.db.Raw(list).Scan(&ids)
	for _, id := range ids {
		if rand.IntN(4) == 0 && h.db.Exec(fmt.Sprintf(end, id)).Error == nil {
			h.Note("connections ended", 1)
		}
	}
}

func (h *hostile) makeDeadlocks(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(rand.N(200 * time.Millisecond)) {
		_ = h.db.Transaction(func(tx *gorm.DB) error { return cross(tx, rand.N(20*time.Millisecond)) })
	}
}

// operate resets, pauses and removes cursors, and disables the table.
func (h *hostile) operate(ctx context.Context) {
	for n := 0; harness.Sleep(ctx, 500*time.Millisecond+rand.N(time.Second)); n++ {
		consumer := hostileConsumers[rand.IntN(len(hostileConsumers))]
		switch {
		case n%20 == 3: // then it begins anew
			h.change("removed by the operator", consumer, hostileEffect{Kind: "reset"}, engine.RemoveConsumer)
		case n%8 == 5:
			h.disable()
		case n%3 == 0:
			h.change("paused", consumer, hostileEffect{Kind: "paused"}, pause(true)) // also if the answer was lost
			time.Sleep(rand.N(time.Second))
			h.resume(consumer)
		default:
			h.reset(consumer)
		}
	}
}

// change changes a cursor, and notes it among the effects in the same transaction.
func (h *hostile) change(what, consumer string, mark hostileEffect, change func(context.Context, *sqldb.DB, engine.ConsumerKey) error) bool {
	h.excuse(consumer)
	mark.Consumer = consumer
	err := h.db.Transaction(func(tx *gorm.DB) error {
		query := tx.Table("UID_CURSOR").Where(map[string]any{"CONSUMER": consumer})
		if h.Relay != nil { // first lock it, so nothing below fails because of other transactions
			query = query.Clauses(clause.Locking{Strength: "UPDATE"})
		}
		var n []int64
		if err := query.Pluck("LAST_ID", &n).Error; err != nil || len(n) == 0 {
			return errors.Join(err, engine.ErrNoConsumer)
		}
		if err := change(h.Context(), h.conn.On(tx.Statement.ConnPool), key(consumer)); err != nil {
			return err
		}
		return tx.Create(&mark).Error
	})
	if err == nil {
		h.Note(what, 1)
	}
	return err == nil
}

func pause(paused bool) func(context.Context, *sqldb.DB, engine.ConsumerKey) error {
	return func(ctx context.Context, db *sqldb.DB, k engine.ConsumerKey) error {
		return engine.PauseConsumer(ctx, db, k, paused)
	}
}

func (h *hostile) resume(consumer string) {
	for !h.change("resumed", consumer, hostileEffect{Kind: "resumed"}, pause(false)) && h.Context().Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
}

// reset sets a cursor to one of the last effects, or some rows further.
func (h *hostile) reset(consumer string) {
	var ids []int64
	if rand.IntN(4) == 0 {
		h.db.Model(&hostileEvent{}).Order("id DESC").Limit(20).Pluck("id", &ids)
	} else {
		h.db.Model(&hostileEffect{}).Where("consumer = ? AND kind = ?", consumer, "handled").Order("n DESC").Limit(50).Pluck("event_id", &ids)
	}
	if len(ids) == 0 {
		return
	}
	to := ids[rand.IntN(len(ids))] - rand.Int64N(2)
	h.change("reset", consumer, hostileEffect{Kind: "reset", EventID: to}, func(ctx context.Context, db *sqldb.DB, k engine.ConsumerKey) error {
		return engine.ResetConsumer(ctx, db, k, to)
	})
}

// disable disables the table for a moment. Rows that were inserted meanwhile may be missed.
func (h *hostile) disable() {
	h.excuse(hostileConsumers...)
	begun := time.Now()
	if err := follow.Disable(h.Context(), h.db, &hostileEvent{}); err == nil {
		h.Note("disabled", 1)
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	for h.Context().Err() == nil {
		err := follow.Enable(h.Context(), h.db, &hostileEvent{}, follow.WithSlack(300*time.Millisecond))
		if err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loose = append(h.loose, [2]time.Time{begun, time.Now()})
}

// drain waits until all consumers have passed the last row, for as long as they proceed.
func (h *hostile) drain() {
	if h.Relay != nil {
		h.Relay.Slow.Store(0)
	}
	var want, last int64
	testkit.Must(h.T, h.db.Raw("SELECT MAX(id) FROM hostile_events").Scan(&want).Error)
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		list, err := engine.ListConsumers(h.Context(), h.conn)
		before := last
		last = want
		for _, c := range list {
			last = min(last, c.Last)
		}
		if last != before {
			begun = time.Now()
		}
		if err == nil && len(list) == len(hostileConsumers) && last == want {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			h.Errorf("consumers are behind: %v", err)
			for _, c := range list {
				h.Errorf("%s: last %d of %d, paused %t, holder %q until %v of %v, %d tries, next %v, stuck at %d: %s", c.Consumer, c.Last, want,
					c.Paused, c.Holder, c.Until, c.Now, c.Attempts, c.RetryAt, c.StuckID, c.Error)
			}
			return
		}
	}
}
