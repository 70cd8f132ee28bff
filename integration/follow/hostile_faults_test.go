package follow_test

import (
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

// addFollowers adds one with a direct connection and one through the proxy, and in the long form children: one is
// killed again and again, and the clock of the other is behind. They take turns in closing.
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
	for ctx.Err() == nil {
		task := f.hostileTask
		task.After = f.last()
		p, err := testkit.Launch("hostile follower", task, func(line string) { f.line(h, line) })
		if err != nil {
			h.Error(err)
			return
		}
		life := time.Hour
		if f.Name == "killed" {
			life = 10*time.Second + rand.N(10*time.Second)
		}
		select {
		case <-ctx.Done():
			_ = p.End()
			p.Kill()
		case <-time.After(life):
			p.Kill()
			h.note("follower killed", 1)
		case <-p.Done():
			h.Errorf("follower %s: %v", f.Name, p.Wait())
			return
		}
	}
}

// keepWriting runs the writers of a task in a child, and again after it was killed.
func (h *hostile) keepWriting(ctx context.Context, task hostileTask) {
	for ctx.Err() == nil {
		p, err := testkit.Launch("hostile writers", task, func(line string) {
			n, what, _ := strings.Cut(line, " ")
			count, _ := strconv.Atoi(n)
			h.note(what, count)
		})
		if err != nil {
			h.Error(err)
			return
		}
		life := time.Hour
		if task.Name == "killed" {
			life = time.Second + rand.N(3*time.Second)
		}
		select {
		case <-ctx.Done():
			if err := p.Stop(); err != nil {
				h.Error(err)
			}
		case <-time.After(life):
			p.Kill()
			h.note("writers killed", 1)
			h.endPrepared(fmt.Sprintf("uid-%d-", p.PID()), 0)
		case <-p.Done():
			h.Errorf("writers %s: %v", task.Name, p.Wait())
			return
		}
	}
}

// makeFaults resets connections, and in the long form kills the server and ends transactions of killed writers.
func (h *hostile) makeFaults(ctx context.Context, length time.Duration) {
	if h.relay == nil {
		return
	}
	every := min(length/2, time.Minute)
	restart := time.Now().Add(every)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second + rand.N(time.Second)):
		}
		h.relay.Reset([]float64{0.2, 1}[rand.IntN(2)])
		h.relay.Slow.Store(int64(rand.N(10 * time.Millisecond)))
		h.note("connections reset", 1)
		if h.server == nil {
			continue
		}
		h.endPrepared("uid-", 3*time.Second)
		if time.Now().After(restart) {
			h.restart()
			restart = time.Now().Add(every)
		}
	}
}

// restart kills the server and starts it again. Its settings flush every commit, except those that a transaction
// excludes, and a mark is published by a commit that is flushed.
func (h *hostile) restart() {
	for _, command := range []string{"kill", "start"} {
		if _, err := testkit.ServersScript(command, h.server.Dir); err != nil {
			h.Error(err)
		}
	}
	h.note("server killed", 1)
}

// endPrepared ends prepared transactions of which it has known for so long, because their writers were killed. With 0
// it waits until all of them have ended.
func (h *hostile) endPrepared(prefix string, age time.Duration) {
	if h.server == nil {
		return
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		left := h.endPreparedOnce(prefix, age)
		if age > 0 || left == 0 {
			return
		}
		if time.Since(begin) > 20*time.Second {
			h.Errorf("%d prepared transactions cannot be ended", left)
			return
		}
	}
}

func (h *hostile) endPreparedOnce(prefix string, age time.Duration) (left int) {
	var names []string
	commit, rollback := "XA COMMIT '", "XA ROLLBACK '"
	if h.Database.IsMySQL() {
		var rows []struct{ Data string }
		if h.db.Raw("XA RECOVER").Scan(&rows).Error != nil {
			return 1
		}
		for _, r := range rows {
			names = append(names, r.Data)
		}
	} else {
		commit, rollback = "COMMIT PREPARED '", "ROLLBACK PREPARED '"
		if h.db.Raw("SELECT gid FROM pg_prepared_xacts").Scan(&names).Error != nil {
			return 1
		}
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
			_ = h.db.Exec([]string{commit, rollback}[rand.IntN(2)] + name + "'").Error
		}
	}
	return left
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
