// Package follow_test tests that followers of a table see each row once and miss none, whatever its writers do.
package follow_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) {
	testkit.ManyAtOnce()
	harness.Main(m, hostileRoles)
}

type event struct {
	ID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Writer int
	N      int
}

// A hostile database has writers and followers of the table events.
type hostile struct {
	*harness.Hostile
	hostileTask // of a direct connection
	db          *gorm.DB
	followers   []*hostileFollower

	mu           sync.Mutex
	open         map[int]time.Time // by writer: when its transaction had inserted its first row
	unheld       int               // transactions that were open when a mark was published
	marks        int               // publications
	gap, longest time.Duration     // between publications; of an INSERT
	naive        []int64           // what id > last has returned

	prepared map[string]time.Time // transactions, and since when the test knows them
}

func (h *hostile) setOpen(writer int, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !open {
		delete(h.open, writer)
	} else if h.open[writer].IsZero() {
		h.open[writer] = time.Now()
	}
}

func (h *hostile) tookInsert(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, d)
}

// Twelve writers use old ids, long transactions, rollbacks, savepoints, batches, upserts, raw SQL, all isolation levels
// and prepared transactions. A proxy delays and resets connections. In the long form the clock of some processes is
// 30 s behind, and processes and servers are killed. Each follower sees the rows of the table in the order of their
// ids, each once. The rows that id > last misses show that the writers are hostile.
//
//	go test -run HostileWriters -v -timeout 0 ./integration/follow/ -hostile.for 10m
func TestFollow_MissesNoRowOfHostileWriters(t *testing.T) {
	t.Parallel()
	harness.RunHostile(t, func(h *harness.Hostile, database testkit.Database) {
		hostile := newHostile(h, database)
		hostile.run()
		hostile.check()
	})
}

func newHostile(base *harness.Hostile, database testkit.Database) *hostile {
	h := &hostile{Hostile: base, prepared: map[string]time.Time{}, open: map[int]time.Time{}}
	t := h.T
	h.Database, h.Own = database, h.Long
	var err error
	h.db, err = h.connect()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = testkit.Close(h.db) })
	testkit.Must(t, h.db.AutoMigrate(&event{}))
	conn, err := sqldb.Open(h.db, 5*time.Second)
	testkit.Must(t, err)
	testkit.Must(t, follow.Enable(t.Context(), conn, hostileTable))
	return h
}

// proxied returns a task that uses the proxy.
func (h *hostile) proxied() hostileTask {
	t := h.hostileTask
	if t.Flaky = h.Relay == nil; h.Relay != nil {
		t.Address = h.Relay.Address()
	}
	return t
}

// run lets the writers write and the followers follow, until these have seen the last row.
func (h *hostile) run() {
	h.addFollowers()
	ctx, cancel := context.WithCancel(h.Context())
	var following sync.WaitGroup
	for _, f := range h.followers {
		following.Go(func() { h.keepFollowing(ctx, f) })
	}
	writing, stop := context.WithCancel(h.Context())
	defer stop()
	following.Go(func() { h.watchMarks(ctx) })
	var polling sync.WaitGroup
	polling.Go(func() { h.pollNaively(writing) })
	polling.Go(func() { h.makeFaults(writing) })
	polling.Go(func() {
		h.Last(h.lacking)
		stop()
	})
	h.write(writing)
	polling.Wait()
	h.endPrepared("", 0)
	truth := h.truth()
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(h.followers, func(f *hostileFollower) bool { return f.last() < lastOf(truth) }) {
			break
		}
	}
	cancel()
	following.Wait()
}

// write runs the writers of this process, and in the long form those of two children: one is killed again and again,
// and the clock of the other is behind.
func (h *hostile) write(ctx context.Context) {
	here, children := 12, []hostileTask{}
	if h.Own {
		here = 10
		killed, behind := h.hostileTask, h.proxied()
		killed.Name, killed.First, killed.Writers = "killed", 10, 1
		behind.Name, behind.First, behind.Writers, behind.Behind = "behind", 11, 1, 30*time.Second
		children = []hostileTask{killed, behind}
	}
	var group sync.WaitGroup
	proxied := h.proxied()
	through, err := proxied.connect()
	for err != nil && harness.Sleep(ctx, 100*time.Millisecond) { // the relay breaks connections, or the server was killed
		through, err = proxied.connect()
	}
	testkit.Must(h.T, err)
	defer func() { _ = testkit.Close(through) }()
	for i := range here {
		db, task := h.db, h.hostileTask
		if i%2 == 1 {
			db, task = through, proxied
		}
		group.Go(func() { task.writer(db, i, reports{h.Note, h.setOpen, h.tookInsert}).write(ctx) })
	}
	for _, task := range children {
		group.Go(func() { h.keepWriting(ctx, task) })
	}
	group.Wait()
}

// truth returns the rows of the table.
func (h *hostile) truth() (ids []int64) {
	testkit.Must(h.T, h.db.Raw("SELECT id FROM events ORDER BY id").Scan(&ids).Error)
	return ids
}

// check compares what the followers have seen with the rows of the table.
func (h *hostile) check() {
	truth := h.truth()
	missed, _, _, _ := compare(truth, h.naive)
	h.Logf("%d rows; id > last misses %d; %d marks published, %v between two at most, "+
		"%d transactions open at publication, longest INSERT %v", len(truth), missed, h.marks,
		h.gap.Round(time.Millisecond), h.unheld, h.longest.Round(time.Millisecond))
	h.LogCounts()
	for _, f := range h.followers {
		missed, twice, disorder, unborn := compare(truth, f.seen)
		text := fmt.Sprintf("follower %s: %d seen up to %d of %d, missed %d, twice %d, out of order %d, not in the table %d",
			f.Name, len(f.seen), lastOf(f.seen), lastOf(truth), missed, twice, disorder, unborn)
		h.Log(text)
		if wrong := twice + disorder + unborn; wrong > 0 || missed > 0 && !f.control {
			h.Error(text)
		}
	}
	if least := len(truth) / 10; missed <= least { // a share, because a slow machine writes fewer rows
		h.Errorf("id > last misses %d rows, not more than %d: the writers were not hostile", missed, least)
	}
	if lacking := h.lacking(); lacking != "" {
		h.Errorf("the writers were not hostile: %s", lacking)
	}
}

// lacking returns what has not happened often enough for the test to mean something.
func (h *hostile) lacking() string {
	part := min(1, h.Length.Seconds()/30)
	all := []string{"committed", "rolled back", "back to a savepoint", "batches of many rows"}
	if h.Own {
		all = append(all, "refused and went on", "upsert of an old row", "writers killed", "follower killed", "refused behind")
	}
	if h.Server != nil {
		all = append(all, "server killed", "prepared", "connections reset")
	}
	if never := h.Never(all...); never != "" {
		return never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch refused := h.Count("refused"); {
	case refused < int(20*part):
		return fmt.Sprintf("%d refused", refused)
	case h.unheld < int(5*part) && h.Database.Name != "sqlite": // it has one writer at a time
		return fmt.Sprintf("%d transactions open when a mark was published", h.unheld)
	}
	return ""
}

func lastOf(ids []int64) int64 {
	if len(ids) == 0 {
		return 0
	}
	return ids[len(ids)-1]
}

// compare counts the rows that were missed or seen twice, those out of order, and those that are not in the table.
func compare(truth, seen []int64) (missed, twice, disorder, unborn int) {
	count := map[int64]int{}
	for i, id := range seen {
		count[id]++
		if i > 0 && id <= seen[i-1] {
			disorder++
		}
	}
	for _, id := range truth {
		switch n := count[id]; {
		case n == 0:
			missed++
		case n > 1:
			twice++
		}
		delete(count, id)
	}
	return missed, twice, disorder, len(count)
}
