package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
)

func TestRun(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"number 100008\n", "number 100057\n", ": table orders, worker id ", "ErrNotDecodable", "room for 16,", "no shard in the context",
		"  orders     number   worker ids []\n", "  orders     sharded  worker ids [", "  customers  cached   worker ids [",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	// 5,000 ids need 312.5 ms, and longer if the database is slower than that.
	over := regexp.MustCompile(`stamped over (.*)\n`).FindStringSubmatch(out.String())
	if d, err := time.ParseDuration(append(over, "", "")[1]); err != nil || d < 312*time.Millisecond {
		t.Errorf("it does not say how far ahead ids are: %q", over)
	}
	lines := regexp.MustCompile(`shard +(\d+)   order \d+, shard +(\d+), number`).FindAllStringSubmatch(out.String(), -1)
	if len(lines) != 6 {
		t.Errorf("%d orders", len(lines))
	}
	for _, m := range lines {
		if m[1] != m[2] {
			t.Errorf("not the shard of the customer: %s", m[0])
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestTwoProcesses checks that two processes with one database share nothing but that.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "orders.db")
	ids, numbers := map[int64]bool{}, map[int64]bool{}
	var both [2]*show
	for i := range both {
		db, p, err := open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		pool, err := db.DB()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		t.Cleanup(func() { _ = p.Close(t.Context()) })
		both[i] = &show{ctx: t.Context(), db: db, ids: p}
	}
	for range 120 {
		for _, s := range both {
			o := Order{CustomerID: 7}
			if err := s.of(o.CustomerID).Create(&o).Error; err != nil {
				t.Fatal(err)
			}
			l, err := s.ids.Locate(t.Context(), uidplugin.ID(o.ID))
			if err != nil || l.Table != "orders" || shardOf(o.ID) != 7 || ids[o.ID] || numbers[o.Number] {
				t.Fatalf("%+v at %+v, %v", o, l, err)
			}
			ids[o.ID], numbers[o.Number] = true, true
			if _, err := s.ids.Locate(t.Context(), uidplugin.ID(o.Number)); !errors.Is(err, uidplugin.ErrNotDecodable) {
				t.Errorf("Locate(%d): %v", o.Number, err)
			}
		}
	}
	if err := both[0].db.Create(&[]Order{{}, {}}).Error; !errors.Is(err, errNoShard) {
		t.Errorf("without a shard: %v", err)
	}
	var n int64
	if err := both[0].db.Model(&Order{}).Count(&n).Error; err != nil || n != 240 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// TestShardedKeepsToItsLeases takes many more ids than a lease has, from renewed ones.
func TestShardedKeepsToItsLeases(t *testing.T) {
	t.Parallel()

	l := layout()
	var mu sync.Mutex // guards lease and renewed
	now := l.TickAt(time.Now())
	lease, renewed := generator.Lease{WorkerID: 5, From: now, Until: now + 2}, 0
	var g generator.Renewable
	g, err := newSharded(uidplugin.GeneratorConfig{Layout: l, Leases: []generator.Lease{lease}, OnLow: func() {
		mu.Lock()
		defer mu.Unlock()
		lease.Until++
		renewed++
		if err := g.Renew(lease); err != nil {
			t.Error(err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if got, most := g.Usage().Left, 3*uint64(l.MaxSequence()+1); got > most || got < most/3 {
		t.Errorf("%d ids of %d left", got, most)
	}
	ctx, last := withShard(t.Context(), 9), int64(0)
	check := func(ids ...int64) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			p, err := l.Decompose(id)
			tick := l.TickAt(p.Time)
			if err != nil || id <= last || shardOf(id) != 9 || p.WorkerID != 5 || tick < lease.From || tick > lease.Until {
				t.Fatalf("%d after %d: %+v, %v; lease %+v", id, last, p, err, lease)
			}
			last = id
		}
	}
	ids := make([]int64, 700)
	for range 10 {
		if err := g.Fill(ctx, ids); err != nil {
			t.Fatal(err)
		}
		check(ids...)
		id, err := g.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check(id)
	}
	if renewed == 0 {
		t.Error("the lease was never renewed")
	}

	g.Close()
	if _, err := g.Next(ctx); !errors.Is(err, generator.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	small := l
	small.SequenceBits = shardBits
	if g, err := newSharded(uidplugin.GeneratorConfig{Layout: small, Leases: []generator.Lease{lease}}); g != nil || err == nil {
		t.Errorf("%v, %v for a sequence that is too short", g, err)
	}
}

// TestShardedTakesLanes checks that what the embedded generator does for it goes for the
// whole layout.
func TestShardedTakesLanes(t *testing.T) {
	t.Parallel()

	l := layout()
	a, b := generator.Lease{WorkerID: 5, From: 1000, Until: 1000}, generator.Lease{WorkerID: 8, From: 1000, Until: 1000}
	g, err := newSharded(uidplugin.GeneratorConfig{Layout: l, Leases: []generator.Lease{a}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Renew(a, b); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the database is unreachable")
	g.Suspend(cause)
	ctx, workers := withShard(t.Context(), 3), map[int64]int64{}
	for {
		left := g.Usage().Left
		id, err := g.Next(ctx)
		if err != nil {
			if !errors.Is(err, generator.ErrLeaseExpired) || !errors.Is(err, cause) || left != 0 {
				t.Errorf("with %d left: %v", left, err)
			}
			break
		}
		p, err := l.Decompose(id)
		if err != nil || l.TickAt(p.Time) != 1000 || left%16 != 0 {
			t.Fatalf("%+v, %v, %d left", p, err, left)
		}
		workers[p.WorkerID]++
	}
	if len(workers) != 2 || workers[5] != perTick(l) || workers[8] != perTick(l) {
		t.Errorf("ids of %v", workers)
	}
}

func TestCheckDigit(t *testing.T) {
	t.Parallel()

	for n, want := range map[int64]int64{0: 0, 7_992_739_871: 3, 1_789_372_997: 4, 10_000: 8} {
		if got := checkDigit(n); got != want {
			t.Errorf("that of %d is %d, want %d", n, got, want)
		}
	}
	// Every wrong digit of a number is told.
	const n = 453_201_511_283_036
	whole := strconv.FormatInt(n*10+checkDigit(n), 10)
	for i := range whole {
		for d := byte('0'); d <= '9'; d++ {
			other := []byte(whole)
			if other[i] == d {
				continue
			}
			other[i] = d
			if m, err := strconv.ParseInt(string(other), 10, 64); err != nil || checkDigit(m/10) == m%10 {
				t.Errorf("%s passes for %s, %v", other, whole, err)
			}
		}
	}
}
