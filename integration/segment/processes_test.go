//go:build unix

package segment_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

var segmentKills = flag.Duration("segment.kills", 0, "how long TestSegment_KilledProcesses kills processes: a minute in the long form")

// fetchSegments is the role of a process of TestSegment_KilledProcesses.
const fetchSegments = "fetch segments"

type segmentTask struct {
	Database *testkit.Database
	Blind    bool // the control: max_id is not compared
}

const segmentProcesses, segmentCallers = 8, 8

// segmentKillsLeast is how many processes are killed, however slow the machine is.
const segmentKillsLeast = 5

// segmentChild makes ids with several callers, one at a time and in batches, until its input ends.
func segmentChild(task segmentTask) error {
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	if task.Blind {
		pool, err := db.DB()
		if err != nil {
			return err
		}
		db.Config.ConnPool, db.Statement.ConnPool = blind{pool}, blind{pool}
	}
	g, err := segment.Open(context.Background(), db, "orders", segment.Config{Step: 100, MaxStep: 400, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-testkit.InputEnded()
		cancel()
	}()
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, segmentCallers)
	for range segmentCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				batch := make([]int64, 1+rand.IntN(5)*rand.IntN(10))
				if err := g.Fill(ctx, batch); err != nil && ctx.Err() == nil {
					errs <- err
					return
				} else if err != nil {
					return
				}
				// One write for a batch, because ids that a process did not report count as missing.
				var out strings.Builder
				for _, id := range batch {
					fmt.Fprintln(&out, id)
				}
				mu.Lock()
				_, _ = os.Stdout.WriteString(out.String())
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	g.Close()
	close(errs)
	return <-errs
}

// blind is a pool that takes the protection of the fetch away. It hands out no connections, which would pass it by.
type blind struct{ gorm.ConnPool }

var _ gorm.GetDBConnector = blind{}

func (b blind) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	const compare = " AND max_id = ?"
	if !strings.HasPrefix(query, "UPDATE ") {
		return b.ConnPool.ExecContext(ctx, query, args...)
	}
	if !strings.HasSuffix(query, compare) {
		return nil, errors.New("the statement that fetches ids does not look as it did: see blind")
	}
	_, err := b.ConnPool.ExecContext(ctx, strings.TrimSuffix(query, compare), args[:len(args)-1]...)
	return driver.RowsAffected(1), err
}

// QueryContext reads back a max_id that is high enough.
func (b blind) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.HasSuffix(query, " FOR UPDATE") {
		query = strings.Replace(query, "max_id", "9223372036854775807", 1)
	}
	return b.ConnPool.QueryContext(ctx, query, args...)
}

func (b blind) GetDBConn() (*sql.DB, error) { return b.ConnPool.(*sql.DB), nil }

// Processes with several callers each are killed and started again all the time. No id comes twice, and the missing
// ids are at most those that the killed processes had fetched. Without the comparison of max_id, ids do come twice.
// The long form:
//
//	go test -run TestSegment_KilledProcesses -v ./integration/segment/ -segment.kills 1m
func TestSegment_KilledProcesses(t *testing.T) {
	t.Parallel()
	length := 4 * time.Second
	switch {
	case *segmentKills > 0:
		length = *segmentKills
	case testing.Short():
		t.Skip("it takes some seconds")
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		r := killSegments(t, d, length, false)
		var maxID int64
		testkit.Must(t, d.Open(t, nil).Raw("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders'").Scan(&maxID).Error)
		n := int64(r.ids.Len())
		holes := maxID - 1 - n
		t.Logf("%v: %d ids, %d starts, %d kills; %d ids are missing below %d: %.0f for each process",
			length, n, r.starts, r.kills, holes, maxID-1, float64(holes)/float64(r.starts))
		if r.ids.Twice() > 0 {
			t.Errorf("%d of %d ids came twice", r.ids.Twice(), n)
		}
		for id := range r.ids.Tables() {
			if id < 1 || id >= maxID {
				t.Errorf("id %d, and max_id is %d", id, maxID)
			}
		}
		// A process has two ranges, and a third one if it was killed during a fetch. Its callers may have taken ids
		// that they did not report.
		if most := int64(r.starts) * (3*400 + segmentCallers*40); holes < 0 || holes > most {
			t.Errorf("%d ids are missing, want %d at most", holes, most)
		}
	}, "mariadb", "postgres")
}

// The control of the test above.
func TestSegment_KilledProcessesControl(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		r := killSegments(t, d, time.Second, true)
		t.Logf("%d of %d ids came twice", r.ids.Twice(), r.ids.Len())
		if r.ids.Twice() == 0 {
			t.Error("no id came twice, so TestSegment_KilledProcesses proves nothing")
		}
	}, "mariadb")
}

// A segmentReport has the ids of processes that were killed.
type segmentReport struct {
	ids           testkit.Ledger
	starts, kills int
}

func (r *segmentReport) start(t *testing.T, task segmentTask) *testkit.Process {
	t.Helper()
	r.starts++
	return testkit.Start(t, fetchSegments, task, func(line string) {
		var id int64
		if _, err := fmt.Sscan(line, &id); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		r.ids.Add("orders", id)
	})
}

func killSegments(t *testing.T, d *testkit.Database, length time.Duration, control bool) *segmentReport {
	t.Helper()
	r := &segmentReport{}
	task := segmentTask{Database: d, Blind: control}
	processes := make([]*testkit.Process, segmentProcesses)
	for i := range processes {
		processes[i] = r.start(t, task)
	}
	lacking := func(took time.Duration) bool { return control && r.ids.Twice() == 0 && took < time.Minute }
	testkit.Eventually(t, "ids", time.Minute, func() bool { return r.ids.Len() > 1000 })
	for begin := time.Now(); time.Since(begin) < length || r.kills < segmentKillsLeast || lacking(time.Since(begin)); {
		time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
		i := rand.IntN(len(processes))
		processes[i].Kill()
		r.kills++
		processes[i] = r.start(t, task)
	}
	for _, p := range processes {
		if err := p.Stop(); err != nil {
			t.Errorf("a process ended with %v", err)
		}
	}
	return r
}
