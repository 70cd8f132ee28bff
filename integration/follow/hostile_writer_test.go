package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// A hostileWriter writes in transactions of all kinds.
type hostileWriter struct {
	hostileTask
	db     *gorm.DB
	number int
	reports
	layout generator.Layout
	floor  int64   // smallest id that was not refused, for a clock that is behind
	mine   []int64 // rows that were committed for sure

	statements int // INSERTs
}

// reports are how a writer reports to the test.
type reports struct {
	note func(what string, n int)
	open func(writer int, open bool) // its transaction has inserted a row
	took func(time.Duration)         // an INSERT
}

func (t hostileTask) writer(db *gorm.DB, number int, r reports) *hostileWriter {
	return &hostileWriter{hostileTask: t, db: db, number: number, reports: r, layout: generator.DefaultLayout()}
}

func (w *hostileWriter) write(ctx context.Context) {
	for ctx.Err() == nil {
		x := w.transaction()
		err := w.db.Connection(func(c *gorm.DB) error {
			x.c = c.Session(&gorm.Session{})
			return x.run()
		})
		switch {
		case err == nil:
			w.note("committed", 1)
			w.note("rows", len(x.ids))
			if !x.forgetful {
				w.mine = append(w.mine, x.ids...)[max(0, len(w.mine)+len(x.ids)-1000):]
			}
		case errors.Is(err, errBack):
			w.note("rolled back", 1)
		case isTooLate(err):
			w.refused(err)
		case sqldb.IsTransient(err), duplicate.MatchString(err.Error()):
			w.note("conflict", 1)
		case harness.Unreachable.MatchString(err.Error()):
			w.note("unreachable", 1)
			x.resolve()
		default:
			w.note(fmt.Sprintf("error: writer %d: %v", w.number, err), 1)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

func isTooLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "uid_follow: too late")
}

var (
	errBack     = errors.New("roll back")
	duplicate   = regexp.MustCompile(`Duplicate entry|duplicate key|UNIQUE constraint|XAER_DUPID|is already in use`)
	tooLateText = regexp.MustCompile(`the id (\d+) is below (\d+) at \d+`)
)

// refused checks that the id of a refused row is below the mark, and sets the floor to the mark, mostly, as the
// generator of a process whose clock is behind would.
func (w *hostileWriter) refused(err error) {
	w.note("refused", 1)
	id, mark := w.refusedAt(err)
	if id >= mark {
		w.note(fmt.Sprintf("error: writer %d: a row was refused for no reason: %v", w.number, err), 1)
	}
	if w.Behind == 0 {
		return
	}
	w.note("refused behind", 1)
	if mark > 0 && rand.IntN(4) > 0 {
		w.floor = mark + rand.Int64N(2) // a row with the id of the mark is not refused
	}
}

// refusedAt returns the id and the mark in the error of a refused row. SQLite's has none.
func (w *hostileWriter) refusedAt(err error) (id, mark int64) {
	if w.Database.Name == "sqlite" {
		w.db.Raw("SELECT MARK FROM UID_FOLLOW_GATE").Scan(&mark)
		return -1, mark
	}
	if m := tooLateText.FindStringSubmatch(err.Error()); m != nil {
		id, _ = strconv.ParseInt(m[1], 10, 64)
		mark, _ = strconv.ParseInt(m[2], 10, 64)
	}
	return id, mark
}

var serial atomic.Int64

// age returns a random age of ids: up to 1.8 s, or up to 0.2 s in the future.
func age() time.Duration {
	return time.Duration(rand.Float64()*rand.Float64()*float64(2*time.Second)) - 200*time.Millisecond
}

// id returns a new id that is about as old.
func (w *hostileWriter) id(age time.Duration) int64 {
	id := w.idOf(w.Behind + age + rand.N(10*time.Millisecond))
	if id < w.floor {
		id, w.floor = w.floor, w.floor+1
	}
	return id
}

func (w *hostileWriter) idOf(age time.Duration) int64 {
	id, err := w.layout.Compose(generator.Parts{Time: time.Now().Add(-age),
		WorkerID: (serial.Add(1)*100 + int64(os.Getpid()%100)) % w.layout.MaxWorkerID(), Sequence: rand.Int64N(16)})
	if err != nil {
		panic(err)
	}
	return id
}
