package supply

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// hangs returns an opener that returns when its context ends.
func hangs(ctx context.Context, _ string) (generator.Generator, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// fewConnections returns a change that limits the pool, and takes some of its connections.
func fewConnections(tb testing.TB, most, taken int) func(*Config) {
	return func(c *Config) {
		pool, err := c.DB.DB()
		testkit.Must(tb, err)
		pool.SetMaxOpenConns(most)
		for range taken {
			conn, err := pool.Conn(tb.Context())
			testkit.Must(tb, err)
			tb.Cleanup(func() { _ = conn.Close() })
		}
	}
}

// A create inside a transaction may wait for a connection that only the end of the transaction gives back.
func TestSupplyTransactionWait_IsShortWhereTheTransactionIsInTheWay(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		mysql   bool
		most    int
		taken   int
		timeout time.Duration
		want    time.Duration
	}{
		{"SQLite", false, 0, 1, 10 * time.Second, time.Second},
		{"SQLite, a short timeout", false, 0, 1, time.Millisecond, time.Millisecond},
		{"SQLite, the only connection", false, 1, 1, 10 * time.Second, 0},
		{"MySQL", true, 0, 1, 10 * time.Second, 10 * time.Second},
		{"MySQL, another connection", true, 2, 1, 10 * time.Second, 10 * time.Second},
		{"MySQL, no other connection", true, 2, 2, 10 * time.Second, time.Second},
		{"MySQL, the only connection", true, 1, 0, 10 * time.Second, 0},
	} {
		s := supplying(t, hangs, func(c *Config) {
			if c.Timeout = tt.timeout; tt.mysql {
				c.DB, _ = testkit.Mock(t, testkit.OnMySQL)
			}
			fewConnections(t, tt.most, tt.taken)(c)
		})
		if got := s.transactionWait(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A create waits as long as its context, its transaction and WithTimeout let it. The error says which of them it was.
func TestSupplyEnsure_WaitsForABoundedTime(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		pool   gorm.ConnPool
		limit  time.Duration // of the caller's context
		after  time.Duration
		is     error
		says   string
		change func(*Config)
	}{
		{"its context", nil, 3 * time.Second, 3 * time.Second, context.DeadlineExceeded,
			"uidplugin: waiting for the generator mine of table orders: context deadline exceeded", func(*Config) {}},
		{"WithTimeout", nil, time.Hour, 10 * time.Second, context.DeadlineExceeded, "cannot be opened", func(*Config) {}},
		{"its transaction", &sql.Tx{}, time.Hour, time.Second, ErrInTransaction,
			"list the models in WithModels", func(*Config) {}},
		{"the only connection", &sql.Conn{}, time.Hour, 0, ErrInTransaction,
			"the generator mine of table orders needs a second connection", fewConnections(t, 1, 0)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supplying(t, hangs, tt.change)
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			begin := time.Now()
			err := s.Ensure(ctx, tt.pool, []*Source{s.source(t, "orders", "mine")})
			if took := time.Since(begin); took != tt.after {
				t.Errorf("%s: after %v", tt.name, took)
			}
			testkit.IsError(t, err, tt.is, tt.says)
		})
	}
}

// Inside a transaction, the error blames the transaction only if it may pass. Others blame the source.
func TestSupplyEnsure_InATransactionTellsLastingErrorsFromOthers(t *testing.T) {
	t.Parallel()

	unreachable := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		err           error
		inTransaction bool
	}{
		{errBroken, false}, {unreachable, true}, {testkit.SQLiteCode(5), true},
	} {
		for _, pool := range []gorm.ConnPool{nil, &sql.Tx{}} {
			s := supplying(t, func(context.Context, string) (generator.Generator, error) { return nil, tt.err })
			err := s.Ensure(t.Context(), pool, []*Source{s.source(t, "orders", "mine")})
			testkit.IsError(t, err, tt.err, "the generator mine of table orders")
			if got := errors.Is(err, ErrInTransaction); got != (tt.inTransaction && pool != nil) {
				t.Errorf("%v on a %T: %v", tt.err, pool, err)
			}
		}
	}
}

// A fixed worker id needs no connection, nor does an opener that sends no statement. So a transaction waits for them,
// even if it has the only connection.
func TestSupplyEnsure_WaitsInATransactionForWhatNeedsNoConnection(t *testing.T) {
	t.Parallel()

	const takes = 3 * time.Second
	slowly := func(context.Context, string) (generator.Generator, error) {
		time.Sleep(takes)
		return &counting{}, nil
	}
	for source, change := range map[string]func(*Config){
		"": func(c *Config) {
			c.Layout.Tick = 4 * time.Second
			c.Layout.Epoch = time.Now().Add(-time.Second)
			c.Now, c.Time, c.Clock = time.Now, time.Now, generator.NewClock(time.Now)
			c.Fixed = NewFixed(c.Layout, 7, time.Second, time.Now)
		},
		"mine": func(c *Config) {
			spec := c.Specs["mine"]
			spec.Local = true
			c.Specs["mine"] = spec
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supplying(t, slowly, fewConnections(t, 1, 0), change)
			begin := time.Now()
			testkit.Must(t, s.Ensure(t.Context(), &sql.Conn{}, []*Source{s.source(t, "orders", source)}))
			if took := time.Since(begin); took != takes {
				t.Errorf("%q: after %v", source, took)
			}
		})
	}
}

// A source whose generator can be made must not wait for one whose generator cannot.
func TestSupplyEnsure_MakesWhatItCan(t *testing.T) {
	t.Parallel()

	s := supplying(t, opens(&counting{}), func(c *Config) {
		c.Default = "bad"
		c.Specs["bad"] = Spec{Lanes: 1, Make: func(generator.Config) (generator.Renewable, error) { return nil, errBroken }}
	})
	good, bad := s.source(t, "good", "mine"), s.source(t, "bad", "")
	err := s.Ensure(t.Context(), nil, []*Source{good, bad})
	testkit.IsError(t, err, errBroken, "uidplugin: the generator bad of all tables cannot be made")
	if !good.Ready() || bad.Ready() {
		t.Errorf("ready: %t, %t", good.Ready(), bad.Ready())
	}
	testkit.IsError(t, s.Health(), errBroken, "no worker id for all tables since")
}

func TestLacking_NamesWhatHasNoGenerator(t *testing.T) {
	t.Parallel()

	ready := &Source{Table: "ready"}
	ready.made.Store(&made{})
	a, b := &Source{Table: "a"}, &Source{Table: "b"}
	c := &Source{Table: "c", Generator: "mine", Opened: true}
	for _, tt := range []struct {
		sources []*Source
		want    string
	}{
		{nil, ""},
		{[]*Source{ready}, ""},
		{[]*Source{a, ready, b}, "a worker id for a, b"},
		{[]*Source{c}, "the generator mine of table c"},
		{[]*Source{c, a}, "a worker id for a, the generator mine of table c"},
	} {
		if got := lacking(tt.sources); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestSupplyNoWorkerID_SaysForWhatAndWhy(t *testing.T) {
	t.Parallel()

	s := supplying(t, hangs)
	testkit.IsError(t, s.noWorkerID(errBroken, "orders"), errBroken,
		"uidplugin: no worker id for orders: the cable is broken")
	late := fmt.Errorf("late: %w", context.DeadlineExceeded)
	testkit.IsError(t, s.noWorkerID(late, "orders"), context.DeadlineExceeded,
		"after 10s, the limit that WithTimeout sets")
	s.Close(t.Context())
	err := s.noWorkerID(late, "orders")
	if testkit.IsError(t, err, ErrClosed, "no worker id for orders"); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: after Close the error must not wrap the earlier cause", err)
	}
}
