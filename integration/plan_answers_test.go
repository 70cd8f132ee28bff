package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A meddler is a connection pool that does to statements about worker ids what a test
// wants.
type meddler struct {
	*sql.DB
	exec atomic.Pointer[meddling]
}

// A meddling gets a statement, what it is about, and what executes it, or another.
type meddling func(about, query string, args []any, run func(query string, args ...any) (sql.Result, error)) (sql.Result, error)

// The statements of the lease protocol, by what is only in them.
var aboutStatement = []struct {
	name   string
	begins string
	has    string
}{
	{"reserve", "UPDATE WORKER_REGISTRY SET NEXT_ID", ""},
	{"insert", "INSERT INTO WORKER_NODE", ""},
	{"take over", "UPDATE WORKER_NODE SET", "HELD_SECOND"},
	{"renew", "UPDATE WORKER_NODE SET FENCE", ""},
	{"give back", "UPDATE WORKER_NODE SET HOLDER", ""},
	{"bind", "UPDATE WORKER_NODE SET TABLE_NAME", ""},
}

func (m *meddler) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	run := func(query string, args ...any) (sql.Result, error) {
		return m.DB.ExecContext(context.WithoutCancel(ctx), query, args...)
	}
	if f, name := m.exec.Load(), about(query); f != nil && name != "" {
		return (*f)(name, query, args, run)
	}
	return run(query, args...)
}

// QueryContext meddles with statements that return rows and change some: PostgreSQL's
// UPDATE ... RETURNING.
func (m *meddler) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	f, name := m.exec.Load(), about(query)
	if f == nil || name == "" {
		return m.DB.QueryContext(ctx, query, args...)
	}
	var rows *sql.Rows
	unwanted := false
	_, err := (*f)(name, query, args, func(query string, args ...any) (sql.Result, error) {
		found, err := m.DB.QueryContext(context.WithoutCancel(ctx), query, args...)
		if err == nil && unwanted { // late
			return manyRows(1), found.Close()
		}
		rows = found
		return manyRows(1), err
	})
	if unwanted = err != nil; unwanted && rows != nil {
		_ = rows.Close()
	}
	return rows, err
}

// about says what a statement of the protocol is about; "" if it is none.
func about(query string) string {
	plain := strings.NewReplacer("`", "", `"`, "").Replace(query)
	for _, s := range aboutStatement {
		if strings.HasPrefix(plain, s.begins) && strings.Contains(plain, s.has) {
			return s.name
		}
	}
	return ""
}

// GetDBConn implements [gorm.GetDBConnector].
func (m *meddler) GetDBConn() (*sql.DB, error) { return m.DB, nil }

// meddled returns a new handle with a meddler.
func meddled(t *testing.T, d *database, f meddling) *gorm.DB {
	t.Helper()
	db := open(t, d)
	pool, err := db.DB()
	must(t, err)
	m := &meddler{DB: pool}
	m.exec.Store(&f)
	db.Config.ConnPool, db.Statement.ConnPool = m, m
	return db
}

// counted counts ids, and those that come twice.
type counted struct {
	seen  map[int64]bool
	twice int
}

func (c *counted) add(ids ...int64) {
	if c.seen == nil {
		c.seen = map[int64]bool{}
	}
	for _, id := range ids {
		if c.seen[id] {
			c.twice++
		}
		c.seen[id] = true
	}
}

// A fate is what becomes of statements.
type fate int

const (
	fateLost  fate = iota // executed, and the answer is lost
	fateLate              // executed when their process does not wait for them any more
	fateLie               // a control: not executed, and the answer says that they were
	fateBlind             // a control: as late, and the statement does not compare
)

var errAnswer = errors.New("the answer is lost")

// What a renewal, and one of the give backs, ends with: its comparisons.
var comparison = regexp.MustCompile("^(.*) AND [`\"]HOLDER[`\"] = (\\?|\\$\\d+) AND [`\"]FENCE[`\"] = (\\?|\\$\\d+)$")

// What names the rows of a statement.
var idList = regexp.MustCompile(`IN \([^)]*\)`)

// manyRows is the result of a statement that changed so many.
type manyRows int64

func (manyRows) LastInsertId() (int64, error)   { return 0, nil }
func (n manyRows) RowsAffected() (int64, error) { return int64(n), nil }

// misfortunes is what happened in a scenario.
type misfortunes struct {
	ids, twice int
	hit        map[string]int // statements, by what they were about
	refused    int            // late statements that changed nothing
	changed    map[string]int // late statements that did
}

// misfortune has one process suffer: the first two statements of each kind meet their
// fate, or in the controls all of one kind. Others come before, meanwhile and
// afterwards, and get their worker ids of the same tables.
func misfortune(t *testing.T, d *database, f fate, only string, durable bool) misfortunes {
	t.Helper()
	r := misfortunes{hit: map[string]int{}, changed: map[string]int{}}
	var ids counted
	c := newMovedClock(0)
	c.base = c.base.Truncate(time.Second)
	config := func(l *workernode.LeasedConfig) { l.Durable = durable }
	healthy := open(t, d)
	start := func(tables ...string) *workernode.Leased {
		k := lessor(t, healthy, c, config)
		for _, table := range tables {
			ids.add(drain(t, tenant(t, k, c, table))...)
		}
		return k
	}
	must(t, start("t1").Close(t.Context()))
	c.move(2 * time.Hour)

	var late []func()
	var mu = make(chan struct{}, 1)
	var meddle atomic.Bool
	meddle.Store(true)
	db := meddled(t, d, func(about, query string, args []any, run func(string, ...any) (sql.Result, error)) (sql.Result, error) {
		mu <- struct{}{}
		defer func() { <-mu }()
		if !meddle.Load() || only != "" && about != only || f != fateLie && r.hit[about] >= 2 {
			return run(query, args...)
		}
		r.hit[about]++
		switch f {
		case fateLost:
			if _, err := run(query, args...); err != nil {
				return nil, err
			}
			return nil, errAnswer
		case fateLie:
			n := 0
			for _, list := range idList.FindAllString(query, -1) {
				n += strings.Count(list, ",") + 1
			}
			return manyRows(n), nil
		}
		if f == fateBlind {
			cut := comparison.FindStringSubmatch(query)
			if cut == nil {
				t.Errorf("the statement does not look as it did: %s", query)
				return run(query, args...)
			}
			query, args = cut[1], args[:len(args)-2]
		}
		late = append(late, func() {
			switch result, err := run(query, args...); {
			case err != nil:
				t.Errorf("the late statement: %v", err)
			default:
				if n, _ := result.RowsAffected(); n == 0 {
					r.refused++
				} else {
					r.changed[about]++
				}
			}
		})
		return nil, context.DeadlineExceeded
	})
	k := lessor(t, db, c, func(l *workernode.LeasedConfig) {
		config(l)
		l.Spares = 1
	})
	var generators []*generator.Cached
	keep := func(lease generator.Lease) {
		g, err := generator.NewCached(generator.CachedConfig{Layout: small(4), Lease: lease, NoWait: true, Clock: generator.NewClock(c.now)})
		must(t, err)
		k.Keep(lease, g)
		generators = append(generators, g)
		ids.add(drain(t, g)...)
	}
	for _, table := range []string{"t1", "t2"} {
		var leases []generator.Lease
		err := errAnswer
		for try := 0; err != nil && try < 10; try++ {
			leases, err = k.Assign(t.Context(), table)
		}
		must(t, err)
		keep(leases[0])
	}
	if lease, ok := k.Spare("t3"); ok {
		keep(lease)
	} else {
		t.Error("no spare")
	}
	renew := func() {
		for _, g := range generators {
			begin := time.Now()
			for i := 0; g.Usage().Left == 0 && time.Since(begin) < 5*time.Second; i++ {
				if i%20 == 0 {
					k.Need()
				}
				time.Sleep(10 * time.Millisecond)
				if i%20 == 10 {
					c.move(time.Second) // what it does not know of has used up the ticks of this moment
				}
			}
			if g.Usage().Left == 0 {
				t.Error("no renewal within 5 s")
			}
			ids.add(drain(t, g)...)
		}
	}
	early := start("t1")
	if f == fateLie && ids.twice > 0 {
		return misfortunes{ids: len(ids.seen), twice: ids.twice, hit: r.hit}
	}
	for range 2 {
		c.move(90 * time.Second) // its worker ids are anybody's now, if it does not renew them
		renew()
	}
	other := start("t1", "t2", "t3")
	if durable { // fences are set by need: another one while the clock stands still
		renew()
	}
	mu <- struct{}{}
	for _, f := range late {
		f()
	}
	<-mu
	_ = k.Close(t.Context()) // the answer may be lost
	mu <- struct{}{}
	for _, f := range late[min(len(late), r.refused+sum(r.changed)):] {
		f()
	}
	<-mu
	meddle.Store(false)
	must(t, errors.Join(early.Close(t.Context()), other.Close(t.Context())))
	// Others come as soon as they may have one worker id after the other.
	for range 8 {
		next := int64(0)
		now := small(4).TickAt(c.now())
		for _, row := range rows(t, healthy) {
			if row.Fence > now && (next == 0 || row.Fence < next) {
				next = row.Fence
			}
		}
		if next == 0 {
			break
		}
		c.move(time.Duration(next-now+1) * time.Second)
		start("t1", "t2", "t3")
	}
	r.ids, r.twice = len(ids.seen), ids.twice
	return r
}

// modes are those that the tests below run in, durable or not: one on each engine, to
// save time.
var modes = map[string][]bool{"sqlite": {true}, "mariadb": {true}, "mysql": {false}, "postgres": {false}}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// Answers are lost after the database has done what it was asked for: the process does
// not know, uses nothing of it, and no id is made twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, durable := range modes[d.name] {
			r := misfortune(t, fresh(t, d.engine), fateLost, "", durable)
			t.Logf("durable %t: %d ids, answers that were lost: %v", durable, r.ids, r.hit)
			if r.twice > 0 {
				t.Errorf("durable %t: %d ids came twice", durable, r.twice)
			}
			all(t, r.hit)
		}
	})
}

// Statements are executed when their process has long gone on: those that compare find
// that things have moved on.
func TestLateStatements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, durable := range modes[d.name] {
			r := misfortune(t, fresh(t, d.engine), fateLate, "", durable)
			t.Logf("durable %t: %d ids, late statements: %v, %d changed nothing, others did: %v", durable, r.ids, r.hit, r.refused, r.changed)
			if r.twice > 0 {
				t.Errorf("durable %t: %d ids came twice", durable, r.twice)
			}
			// A late insert makes a row that nobody uses yet, a late give back is right, and a
			// late reservation skips worker ids.
			for _, about := range []string{"take over", "renew", "bind"} {
				if r.changed[about] > 0 {
					t.Errorf("durable %t: a late statement, %s, changed something", durable, about)
				}
			}
			all(t, r.hit)
		}
	})
}

// all fails unless statements of all kinds have met their fate.
func all(t *testing.T, hit map[string]int) {
	t.Helper()
	for _, s := range aboutStatement {
		if hit[s.name] == 0 {
			t.Errorf("there was no statement %q: %v", s.name, hit)
		}
	}
}

// The controls of the two tests above: a process that believes what was not done, and
// a late statement that does not compare. There are ids that come twice.
func TestAnswersControl(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			name    string
			fate    fate
			only    string
			durable bool
		}{
			{"believed to be taken over", fateLie, "take over", false},
			{"believed to be renewed", fateLie, "renew", false},
			{"late renewals that do not compare", fateBlind, "renew", true},
		} {
			r := misfortune(t, fresh(t, d.engine), test.fate, test.only, test.durable)
			t.Logf("%s: %d of %d ids came twice, %v", test.name, r.twice, r.ids, r.hit)
			if r.twice == 0 {
				t.Errorf("%s: no id came twice, so the tests of answers prove nothing", test.name)
			}
		}
	}, "sqlite", "mariadb")
}

// A believer is a pool that says of autocommit what is wanted.
type believer struct{ *sql.DB }

func (b *believer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return b.DB.QueryContext(ctx, strings.Replace(query, "@@autocommit", "1", 1), args...)
}

// GetDBConn implements [gorm.GetDBConnector].
func (b *believer) GetDBConn() (*sql.DB, error) { return b.DB, nil }
