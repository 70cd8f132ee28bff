package follow_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

var transient = regexp.MustCompile(`SQLSTATE (40001|40P01|55P03)|Error (1020|1180|1205|1213)|` +
	`database (table )?is locked|SQLITE_BUSY`)

// addFollowers adds a follower with a direct connection and one through the proxy, and in the long form two children:
// one is killed again and again, and the clock of the other is behind. All take turns in closing.
func (h *hostile) addFollowers() {
	add := func(task hostileTask, name string) *hostileFollower {
		f := &hostileFollower{hostileTask: task}
		f.Name, f.Locking = name, h.Own
		h.followers = append(h.followers, f)
		return f
	}
	add(h.hostileTask, "direct")
	add(h.proxied(), "proxied")
	if !h.Own {
		return
	}
	add(h.proxied(), "killed").child = true
	behind := add(h.hostileTask, "behind")
	behind.child, behind.Behind = true, 30*time.Second
	if h.Database.IsMySQL() {
		control := add(h.hostileTask, "without locking")
		control.control, control.Locking = true, false
	}
}

// keepFollowing runs a follower until the context ends, and again after it was killed, from the last row that it saw.
func (h *hostile) keepFollowing(ctx context.Context, f *hostileFollower) {
	for ctx.Err() == nil && !f.child {
		db, err := f.connect()
		if err != nil {
			h.followerFailed(f, err)
			continue
		}
		f.follow(ctx, db, f.saw, func(err error) { h.followerFailed(f, err) })
		_ = testkit.Close(db)
	}
	if !f.child {
		return
	}
	task := func() any {
		task := f.hostileTask
		task.After = f.last()
		return task
	}
	life := h.life(f.Name, 10*time.Second, 10*time.Second)
	h.Keep(ctx, "hostile follower", task, func(line string) { f.line(h, line) }, life, func(p *testkit.Process) bool {
		p.Kill()
		h.Note("follower killed", 1)
		return true
	})
}

// life returns after how long a process is killed.
func (h *hostile) life(name string, least, more time.Duration) func() time.Duration {
	if name != "killed" {
		return func() time.Duration { return 1<<63 - 1 }
	}
	return func() time.Duration { return least + rand.N(more) }
}

// keepWriting runs the writers of a task in a child, and again after it was killed.
func (h *hostile) keepWriting(ctx context.Context, task hostileTask) {
	line := func(line string) {
		n, what, _ := strings.Cut(line, " ")
		count, _ := strconv.Atoi(n)
		h.Note(what, count)
	}
	life := h.life(task.Name, time.Second, 3*time.Second)
	h.Keep(ctx, "hostile writers", func() any { return task }, line, life, func(p *testkit.Process) bool {
		p.Kill()
		h.Note("writers killed", 1)
		h.endPrepared(fmt.Sprintf("uid-%d-", p.PID()), 0)
		return true
	})
}

// makeFaults resets connections, and in the long form kills the server and ends transactions of killed writers. The
// server's settings flush every commit, except those that a transaction excludes, and a mark is published by a commit
// that is flushed.
func (h *hostile) makeFaults(ctx context.Context) {
	if h.Relay != nil {
		h.Disturb(ctx, 10*time.Millisecond, func() bool { h.endPrepared("uid-", 3*time.Second); return false }, func() {})
	}
}

// endPrepared ends prepared transactions that it has known for age, because their writers were killed. With age 0 it
// waits until all of them have ended, for a minute of answers: a server that was killed may be away for longer.
func (h *hostile) endPrepared(prefix string, age time.Duration) {
	if h.Server == nil {
		return
	}
	for answers := 0; ; time.Sleep(50 * time.Millisecond) {
		left, err := h.endPreparedOnce(prefix, age)
		if age > 0 || left == 0 && err == nil {
			return
		}
		if left > 0 {
			answers++
		}
		if answers > 1200 {
			h.Errorf("%d prepared transactions cannot be ended: %v", left, err)
			return
		}
	}
}

// endPreparedOnce returns how many it has tried to end, and an error.
func (h *hostile) endPreparedOnce(prefix string, age time.Duration) (left int, err error) {
	var names []string
	commit, rollback := "XA COMMIT '", "XA ROLLBACK '"
	if h.Database.IsMySQL() {
		var rows []struct{ Data string }
		err = h.db.Raw("XA RECOVER").Scan(&rows).Error
		for _, r := range rows {
			names = append(names, r.Data)
		}
	} else {
		commit, rollback = "COMMIT PREPARED '", "ROLLBACK PREPARED '"
		err = h.db.Raw("SELECT gid FROM pg_prepared_xacts").Scan(&names).Error
	}
	for _, name := range names {
		h.mu.Lock()
		since, known := h.prepared[name]
		if !known {
			since = time.Now()
			h.prepared[name] = since
		}
		h.mu.Unlock()
		if strings.HasPrefix(name, prefix) && time.Since(since) >= age {
			left++
			err = cmp.Or(h.db.Exec([]string{commit, rollback}[rand.IntN(2)]+name+"'").Error, err)
		}
	}
	return left, err
}

// watchMarks counts publications, and the transactions that were open all the time while a mark was published.
func (h *hostile) watchMarks(ctx context.Context) {
	last, at := int64(0), time.Now()
	for before := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		asked := time.Now()
		var published int64
		if h.db.Raw(`SELECT `+h.quote("PUBLISHED")+` FROM `+h.quote("UID_FOLLOW")).Scan(&published).Error != nil {
			continue
		}
		h.mu.Lock()
		if published > last && last > 0 {
			h.marks++
			h.gap = max(h.gap, time.Since(at))
			at = time.Now()
			for writer, since := range h.open {
				if since.Before(before) {
					h.unheld++
					h.open[writer] = time.Now().Add(time.Hour) // once
				}
			}
		}
		h.mu.Unlock()
		last, before = published, asked
	}
}

func (h *hostile) quote(name string) string { return h.db.Statement.Quote(name) }

// pollNaively reads rows above the last one.
func (h *hostile) pollNaively(ctx context.Context) {
	for ctx.Err() == nil {
		var ids []int64
		if h.db.Raw("SELECT id FROM events WHERE id > ? ORDER BY id", lastOf(h.naive)).Scan(&ids).Error == nil {
			h.naive = append(h.naive, ids...)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
