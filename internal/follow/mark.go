package follow

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/logqueue"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// ErrNotEnabled reports a table that follow.Enable has not prepared, or whose preparation was changed.
var ErrNotEnabled = errors.New("the table is not enabled for following")

// A Mark is the published mark of a table. All followers in a process share it, and as long as there are followers, a
// goroutine advances it. It may be used concurrently.
type Mark struct {
	db     *sqldb.DB
	table  Table
	layout generator.Layout
	now    func() time.Time
	me     string
	known  atomic.Pointer[statements] // nil until the table was found
	turn   chan struct{}              // held during a visit, because a process does one round at a time
	seen   int64                      // the published mark at the last visit; guarded by turn
	held   time.Time                  // begin of the round for which noteHeld has logged a line; guarded by turn

	log       *slog.Logger
	heldAfter time.Duration // how long a round may wait before it is logged
	server    serverCheck   // guarded by turn

	mu     sync.Mutex
	users  int   // followers
	latest *news // never nil
	stop   func()
}

// news is the latest result of the goroutine. It does not change; next is closed when there is other news.
type news struct {
	published int64
	recovered []int64 // the marks that the database had after it lost commits
	err       error
	next      chan struct{}
}

// wait waits for other news, or until the context ends.
func (n *news) wait(ctx context.Context) {
	select {
	case <-n.next:
	case <-ctx.Done():
	}
}

// NewMark returns the mark of a table. now is the clock of this process. GORM's logger does not see the statements.
func NewMark(db *sqldb.DB, table Table, layout generator.Layout, now func() time.Time) *Mark {
	return &Mark{db: db.Silent(), table: table, layout: layout, now: now, me: rand.Text(), turn: make(chan struct{}, 1),
		latest: &news{next: make(chan struct{})}, log: slog.New(slog.DiscardHandler), heldAfter: 10 * time.Second}
}

// SetHost sets the name of this process in the column CLOSER, from its host. Call it before the mark is used.
func (m *Mark) SetHost(h workernode.Host) { m.me = processName(h) }

// SetLogger sets the logger for changes of state. Call it before the mark is used. Nobody waits for the logger.
func (m *Mark) SetLogger(log *slog.Logger) { m.log = logqueue.New(nil).Logger(log) }

// statements returns the statements for the database.
func (m *Mark) statements(ctx context.Context) (*statements, error) {
	if s := m.known.Load(); s != nil {
		return s, nil
	}
	flavor, err := FlavorOf(ctx, m.db)
	if err != nil {
		return nil, m.failed(err)
	}
	t, exists, err := flavor.located(ctx, m.db, m.table)
	if err != nil {
		return nil, m.failed(err)
	}
	s := newStatements(flavor, t)
	if exists {
		m.known.CompareAndSwap(nil, s) // all followers keep the table that the first has found
		s = m.known.Load()
	}
	return s, nil
}

// Schema returns the schema where the table is, or "" if the table's name has one. It returns an error if the table does
// not exist, because a table that appears later may be in any schema.
func (m *Mark) Schema(ctx context.Context) (string, error) {
	s, err := m.statements(ctx)
	known := m.known.Load() // not s, because another follower may have found the table meanwhile
	if err == nil && known == nil {
		if _, err = s.state(ctx, m.db); err == nil { // ErrNotEnabled, or an error that ends when the table appears
			err = errors.New("the table has just appeared")
		}
		err = m.failed(err)
	}
	if err != nil {
		return "", err
	}
	return known.table.Schema, nil
}

func (m *Mark) failed(err error) error {
	return fmt.Errorf("uidplugin: follow %s: %w", m.table.Name, enabled(err))
}

// follow starts the goroutine for the first follower. Call the returned function when the follower ends.
func (m *Mark) follow() (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
	if m.users == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		m.latest = &news{next: make(chan struct{})}
		go func() { m.run(ctx); close(ended) }()
		m.stop = func() {
			cancel()
			<-ended
			m.giveTurn()
		}
	}
	return func() {
		m.mu.Lock()
		m.users--
		stop := func() {}
		if m.users == 0 {
			stop = m.stop
		}
		m.mu.Unlock()
		stop()
	}
}

// giveTurn ends the turn of this process, so that another process can close at once. If that takes longer
// than 100 ms, as without a free connection, giveTurn returns, and the statement goes on in the background.
func (m *Mark) giveTurn() {
	s := m.known.Load()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	given := make(chan struct{})
	go func() {
		defer cancel()
		_ = s.giveTurn(ctx, m.db, m.me) // after an error the turn ends by itself
		close(given)
	}()
	select {
	case <-given:
	case <-time.After(100 * time.Millisecond):
	}
}

// news returns the latest news.
func (m *Mark) news() *news {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// State returns the number of followers, the published mark that they know, and the latest error.
func (m *Mark) State() (followers int, published int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == 0 {
		return 0, 0, nil
	}
	return m.users, m.latest.published, m.latest.err
}

// run advances the mark until the context ends.
func (m *Mark) run(ctx context.Context) {
	busy := time.Now()
	for {
		state, err := m.visit(ctx, false)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		if last := m.latest; last.published != state.Published || err != nil || last.err != nil {
			m.latest = &news{published: state.Published, recovered: last.recovered, err: err, next: make(chan struct{})}
			if err != nil {
				m.latest.published = last.published
			}
			close(last.next)
		}
		m.mu.Unlock()
		pause := errorPause
		if err == nil {
			if state.Next > 0 {
				busy = time.Now()
			}
			pause = state.Pause(m.layout, time.Since(busy) < idleAfter)
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// idleAfter is how long a table without new rows counts as busy.
const idleAfter = time.Minute

// Advance publishes a new mark, unless another process is the closer of the table, and returns the published mark. It
// waits for transactions that have inserted rows into the table, until the context ends.
func (m *Mark) Advance(ctx context.Context) (int64, error) {
	state, err := m.visit(ctx, true)
	return state.Published, err
}

// Begin returns the mark at which a follower of only new rows begins. Ids that are made after the call are not below
// the mark, unless a clock is behind the database's by more than the slack. The published mark is not enough while
// another process is the closer: old rows may be above it, and new rows below the next one.
func (m *Mark) Begin(ctx context.Context) (mark int64, err error) {
	s, err := m.statements(ctx)
	if err != nil {
		return 0, err
	}
	before := m.now()
	state, err := s.state(ctx, m.db)
	if err == nil {
		_, err = decide(state, m.layout, m.me, before, m.now())
	}
	if err == nil {
		mark, err = MarkAt(m.layout, state.Now.Add(-state.Slack))
	}
	if err != nil {
		err = m.failed(err)
	}
	return mark, err
}

// Published returns the published mark without advancing it. When the same transaction reads rows afterwards, it sees
// all rows below the mark.
func (m *Mark) Published(ctx context.Context, tx gorm.ConnPool) (int64, error) {
	s, err := m.statements(ctx)
	if err != nil {
		return 0, err
	}
	published, err := s.published(ctx, m.db.On(tx))
	return published, enabled(err)
}

// recent returns the published mark, and the marks that were published before. Call it after rows were read.
func (m *Mark) recent(ctx context.Context) (state State, err error) {
	s, err := m.statements(ctx)
	if err != nil {
		return state, err
	}
	rows := 0
	err = m.db.Query(ctx, func(r *sql.Rows) error { rows++; return r.Scan(&state.Published, &state.Recent) },
		"SELECT "+s.flavor.columns("PUBLISHED, RECENT")+" FROM "+s.marks()+s.row())
	if err == nil {
		err = oneRow(rows)
	}
	return state, enabled(err)
}

// Place returns the quoted name of the table with the schema that has the mark. It returns "" if the table's name
// has a schema already, and on SQLite. Call it after Published. With the name, followers read the table of the
// mark, whatever schema the application has set on the connection.
func (m *Mark) Place() string {
	if s := m.known.Load(); s != nil && s.table.Schema != "" {
		return s.flavor.in(s.table, s.table.Name)
	}
	return ""
}

// visit reads the state of the table, and does a round if decide plans one. With force it plans as if a row waited. The
// state that it returns has the new published mark.
func (m *Mark) visit(ctx context.Context, force bool) (state State, err error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return state, ctx.Err()
	}
	s, err := m.statements(ctx)
	if err != nil {
		return state, err
	}
	seen, unusable := m.seen, error(nil) // unusable: restore failed after the round, so m.together closes conn
	err = m.together(ctx, s, func(ctx context.Context, conn *sqldb.DB) (err error) {
		if err := m.server.run(ctx, conn, s); err != nil {
			return err
		}
		before := m.now()
		unusable = nil
		if state, err = s.state(ctx, conn); err != nil {
			return err
		}
		m.noteLoss(state)
		due := state
		if force {
			due.Next = max(state.Published, 1) // as if a row waited
		}
		plan, err := decide(due, m.layout, m.me, before, m.now())
		if err != nil || plan.Mark == 0 {
			return err
		}
		if plan.Take {
			if ok, err := s.claim(ctx, conn, m.me); err != nil || !ok {
				return err
			}
		}
		restore := s.limit(ctx, conn)
		if state.Published, err = m.close(ctx, conn, s, Round{Mark: plan.Mark}, state); err == nil {
			unusable = restore()
		}
		return errors.Join(err, unusable)
	})
	if unusable != nil { // Together may have been a transaction, which was rolled back
		state.Published, err = s.published(ctx, m.db)
	}
	if err != nil {
		m.server.again()
		return State{}, m.failed(err)
	}
	m.noteMoved(seen, state.Published)
	m.seen = state.Published
	return state, nil
}

// together calls f with a connection. On SQLite a round needs no connection of its own, and must not have one:
// Together closes it after an error, also when the context ends with the last follower, and a database in memory would
// end with its connection.
func (m *Mark) together(ctx context.Context, s *statements, f func(ctx context.Context, conn *sqldb.DB) error) error {
	if s.flavor == SQLite {
		return f(ctx, m.db)
	}
	return m.db.Together(ctx, f)
}

// noteMoved logs that a table is no longer held up, if this process or another process has published a higher mark.
func (m *Mark) noteMoved(from, to int64) {
	if to > from && !m.held.IsZero() {
		m.log.Info("uidplugin: a followed table is no longer held up", "table", m.table.Name, "after", time.Since(m.held).Round(time.Second))
		m.held = time.Time{}
	}
}

// noteHeld logs that a round has waited for long. Only the closer waits, so only one process logs it.
func (m *Mark) noteHeld(since time.Time) {
	if m.held.IsZero() && time.Since(since) >= m.heldAfter {
		m.held = since
		m.log.Warn("uidplugin: a followed table is held up: a transaction that has inserted rows into it is still open,"+
			" so followers get no rows until it ends; uid follow status shows it", "table", m.table.Name)
	}
}

// noteLoss tells followers if the database has lost commits since the last visit.
func (m *Mark) noteLoss(state State) {
	recovered, lost := state.lost(m.seen)
	m.seen = state.Published
	if !lost {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.latest
	m.latest = &news{published: state.Published, recovered: append(slices.Clip(last.recovered), recovered), next: make(chan struct{})}
	close(last.next)
}

// close does a round on one connection. It returns the published mark, which stays as it was if another process became
// the closer meanwhile.
func (m *Mark) close(ctx context.Context, conn *sqldb.DB, s *statements, round Round, state State) (int64, error) {
	published, since := state.Published, time.Now()
	for {
		var err error
		passed, begun := true, time.Now()
		switch round.Step {
		case Raise:
			err = s.raise(ctx, conn, round.Mark)
		case PassIdle:
			passed, err = s.pass(ctx, conn, idleGate, round.Mark)
		case PassUsed:
			s.divert(ctx, conn)
			passed, err = s.pass(ctx, conn, usedGate, round.Mark)
			s.undivert(ctx, conn)
		case Publish:
			published, err = s.publish(ctx, conn, round.Mark, state)
		case Done:
			return published, nil
		}
		if err != nil {
			return 0, err
		}
		if passed {
			round.Passed()
		}
		if passed && time.Since(begun) < turn/10 {
			continue
		}
		if !passed {
			m.noteHeld(since)
		}
		if ok, err := s.claim(ctx, conn, m.me); err != nil || !ok {
			return published, err
		}
	}
}

// The gates. New transactions use the first, unless the closer waits for it.
const (
	usedGate = 1
	idleGate = 2
)
