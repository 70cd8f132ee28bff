//go:build linux

package chaos_test

import (
	"flag"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var segmentGalera = flag.Bool("segment.galera", false, "TestSegmentGalera, which starts three nodes")

// Generators on all three nodes of a Galera cluster fetch ranges from one row, while nodes are killed and join again.
// No id comes twice, although reads may be stale, locks are local to a node, and a commit may be refused:
//
//	go test -run TestSegmentGalera -v ./integration/chaos/ -segment.galera
func TestSegmentGalera(t *testing.T) {
	t.Parallel()
	if !*segmentGalera {
		t.Skip("it takes half a minute: -segment.galera")
	}
	g := newGalera(t)
	var mu sync.Mutex
	var ids testkit.Ledger
	var failed int
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var all []*segment.Generator
	for i := range 6 {
		db, err := gorm.Open(mysql.Open(g.dsn(i%3, "uid")+"&timeout=1s&readTimeout=2s"), &gorm.Config{Logger: logger.Discard})
		testkit.Must(t, err)
		s, err := segment.Open(t.Context(), db, "orders", segment.Config{Timeout: 3 * time.Second, Step: 20, MaxStep: 20, Log: slog.New(slog.DiscardHandler)})
		testkit.Must(t, err)
		defer s.Close()
		all = append(all, s)
		for range 2 {
			wg.Go(func() {
				batch := make([]int64, 10)
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
					err := s.Fill(t.Context(), batch)
					mu.Lock()
					if err != nil {
						failed++
					} else {
						ids.Add("orders", batch...)
					}
					mu.Unlock()
				}
			})
		}
	}
	time.Sleep(3 * time.Second)
	g.killed(2)
	g.killed(0)
	time.Sleep(3 * time.Second)
	testkit.Eventually(t, "recovery of all generators", time.Minute, func() bool {
		return !slices.ContainsFunc(all, func(s *segment.Generator) bool { return s.State().LastError != nil })
	})
	close(stop)
	wg.Wait()
	var conflicts, ranges, fails int64
	for _, s := range all {
		state := s.State()
		conflicts, ranges, fails = conflicts+state.Conflicts, ranges+state.Ranges, fails+state.Failed
	}
	t.Logf("%d ids in %d ranges, %d conflicts, %d fetches and %d callers failed", ids.Len(), ranges, conflicts, fails, failed)
	if ids.Twice() > 0 {
		t.Errorf("%d ids came twice", ids.Twice())
	}
	if conflicts == 0 || fails == 0 {
		t.Error("there were no conflicts, or nobody noticed that nodes were away")
	}
}
