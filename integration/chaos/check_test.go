//go:build unix

package chaos_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// The default layout, from the right: sequence, worker id, time.
const (
	chaosSequenceBits = 4
	chaosWorkerBits   = 18
)

// A chaosCount counts the ids that processes have written down.
type chaosCount struct {
	pattern string           // of the files
	read    map[string]int64 // how far they were read
	files   []string
	workers map[int64]*chaosWorker
	ids     int64
	ranges  int
	faults  []string
	nowhere []string // faults too: ids that resolve to nothing
}

// A chaosWorker has the ids that were stamped with one worker id, as positions: the tick followed by the sequence.
type chaosWorker struct {
	table int64
	spans []chaosSpan
}

type chaosSpan struct {
	at, end int64
	file    int
}

func newChaosCount(dir string) *chaosCount {
	return &chaosCount{pattern: filepath.Join(dir, "*.ids"), read: map[string]int64{}, workers: map[int64]*chaosWorker{}}
}

func (c *chaosCount) fault(format string, args ...any) { note(&c.faults, format, args...) }

// note adds to a list that a report can print.
func note(list *[]string, format string, args ...any) {
	if len(*list) < 20 {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

// update reads what was written since the last time.
func (c *chaosCount) update() error {
	names, err := filepath.Glob(c.pattern)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.updateFile(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *chaosCount) updateFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(c.read[name], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if c.read[name] == 0 && len(data) > 0 {
		c.files = append(c.files, filepath.Base(name))
	}
	at := slices.Index(c.files, filepath.Base(name))
	const size = 24
	for ; len(data) >= size; data = data[size:] {
		c.read[name] += size
		c.add(at, int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[8:])),
			int64(binary.LittleEndian.Uint64(data[16:])))
	}
	return nil
}

// add counts n ids from id on.
func (c *chaosCount) add(file int, table, id, n int64) {
	worker := id >> chaosSequenceBits & (1<<chaosWorkerBits - 1)
	at := id>>(chaosSequenceBits+chaosWorkerBits)<<chaosSequenceBits | id&(1<<chaosSequenceBits-1)
	c.ids += n
	c.ranges++
	w := c.workers[worker]
	if w == nil {
		w = &chaosWorker{table: table}
		c.workers[worker] = w
	}
	if w.table != table {
		c.fault("worker id %d has ids of %s and of %s (%s)", worker, chaosTables[w.table].name, chaosTables[table].name,
			c.files[file])
	}
	if k := len(w.spans) - 1; k >= 0 && w.spans[k].end == at && w.spans[k].file == file {
		w.spans[k].end += n
		return
	}
	w.spans = append(w.spans, chaosSpan{at, at + n, file})
}

// duplicates counts the ids that were made more than once.
func (c *chaosCount) duplicates() (n int64, first string) {
	layout := generator.DefaultLayout()
	for worker, w := range c.workers {
		slices.SortFunc(w.spans, func(a, b chaosSpan) int { return cmp.Compare(a.at, b.at) })
		var last chaosSpan
		for _, s := range w.spans {
			if s.at < last.end {
				n += min(s.end, last.end) - s.at
				if first == "" {
					first = fmt.Sprintf("worker id %d (%s), tick %d (%v), sequence %d, by %s and %s", worker,
						chaosTables[w.table].name, s.at>>chaosSequenceBits,
						layout.TimeOf(s.at>>chaosSequenceBits), s.at&(1<<chaosSequenceBits-1), c.files[last.file], c.files[s.file])
				}
			}
			if s.end > last.end {
				last = s
			}
		}
	}
	return n, first
}

// resolve checks that each id resolves to its table and to the process that made it. The spans are sorted. All of them
// are compared with the tables, and a sample with Locate.
func (c *chaosCount) resolve(ctx context.Context, db *workernode.DB, statements *sqldb.DB, p *uidplugin.Plugin) error {
	nodes, sessions, err := c.tables(ctx, db, statements)
	if err != nil {
		return err
	}
	var sample []chaosSample
	for worker, w := range c.workers {
		n := nodes[worker]
		if n == nil {
			c.fault("worker id %d has no row", worker)
			continue
		}
		if n.Table.Name != chaosTables[w.table].name {
			c.fault("worker id %d: its row is of table %q, its ids are of %s", worker, n.Table, chaosTables[w.table].name)
		}
		for _, s := range w.spans {
			first, last := s.at>>chaosSequenceBits, (s.end-1)>>chaosSequenceBits
			process := strings.TrimSuffix(c.files[s.file], ".ids")
			if first <= n.Start {
				c.fault("worker id %d: an id of tick %d, START_TICK is %d", worker, first, n.Start)
			}
			c.span(worker, process, first, last, sessions[n.Slot])
			sample = append(sample, chaosSample{last<<(chaosWorkerBits+chaosSequenceBits) | worker<<chaosSequenceBits | (s.end-1)&(1<<chaosSequenceBits-1), w.table, process})
		}
	}
	rand.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	for _, s := range sample[:min(len(sample), 1000)] {
		l, err := p.Locate(ctx, uidplugin.ID(s.id))
		list := &c.faults
		if errors.Is(err, uidplugin.ErrUnknownID) {
			list = &c.nowhere
		}
		if err != nil || l.Table != chaosTables[s.table].name || l.Session.Port != s.process {
			note(list, "Locate(%d) = %+v, %v; want table %s of %s", s.id, l, err, chaosTables[s.table].name, s.process)
		}
	}
	return nil
}

// A chaosSample is an id, and what it must resolve to.
type chaosSample struct {
	id, table int64
	process   string
}

// span checks that the ticks from first to last of a worker id are of one process. The sessions are in ascending order.
func (c *chaosCount) span(worker int64, process string, first, last int64, sessions []chaosSession) {
	at := sort.Search(len(sessions), func(i int) bool { return sessions[i].StartTick >= first }) - 1
	if at < 0 {
		c.fault("worker id %d: tick %d of %s lies before all sessions", worker, first, process)
		return
	}
	for ; at < len(sessions) && sessions[at].StartTick < last; at++ {
		if sessions[at].Port != process {
			c.fault("worker id %d: ticks %d to %d of %s resolve to %s", worker, first, last, process, sessions[at].Port)
			return
		}
	}
	for _, s := range sessions[at:] {
		if s.BeforeTick < last {
			note(&c.nowhere, "worker id %d: tick %d of %s is unknown: BEFORE_TICK of the session of %s is %d", worker, last, process,
				s.Port, s.BeforeTick)
			return
		}
	}
}

// A chaosSession is a row of WORKER_SESSION.
type chaosSession struct {
	StartTick, BeforeTick int64
	Port                  string
}

// tables reads all worker ids, and the sessions of all slots in ascending order.
func (c *chaosCount) tables(ctx context.Context, db *workernode.DB, statements *sqldb.DB) (map[int64]*workernode.Node,
	map[int64][]chaosSession, error) {
	nodes, sessions := map[int64]*workernode.Node{}, map[int64][]chaosSession{}
	for after := int64(0); ; {
		found, err := db.Nodes(ctx, after, 1000)
		if err != nil || len(found) == 0 {
			return nodes, sessions, err
		}
		for _, n := range found {
			after, nodes[n.WorkerID] = n.WorkerID, n
			if _, read := sessions[n.Slot]; read {
				continue
			}
			sessions[n.Slot] = nil
			err := statements.Query(ctx, func(rows *sql.Rows) error {
				var s chaosSession
				err := rows.Scan(&s.StartTick, &s.BeforeTick, &s.Port)
				sessions[n.Slot] = append(sessions[n.Slot], s)
				return err
			}, `SELECT "START_TICK", "BEFORE_TICK", "PORT" FROM "WORKER_SESSION" WHERE "SLOT" = ? ORDER BY "START_TICK"`, n.Slot)
			if err != nil {
				return nil, nil, err
			}
		}
	}
}

// chaosEvents are the events that the processes have reported.
type chaosEvents struct {
	reclaimed, allocated, lost, lostCommits int64
	open                                    time.Duration // the longest until a process had its worker ids
	openOf                                  string
	stall, stallClock                       time.Duration // the longest of a caller, and of one whose clock was set
	stallOf, stallClockOf                   string
	recovery                                time.Duration // the longest, after the server's return
	recoveryOf                              string
	recovered                               int // how many callers have stalled over a return
	unclosed                                int
	faults                                  []string
}

// events reads them. returns are the times at which the server was back.
func (c *chaosCount) events(returns []time.Time) (e chaosEvents, err error) {
	names, err := filepath.Glob(strings.TrimSuffix(c.pattern, ".ids") + ".events")
	if err != nil {
		return e, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return e, err
		}
		name = filepath.Base(name)
		var stats [6]int64 // the latest
		for line := range strings.Lines(string(text)) {
			what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch what {
			case "fault":
				e.faults = append(e.faults, name+": "+rest)
			case "unclosed":
				e.unclosed++
			case "open":
				ms, _ := strconv.ParseInt(rest, 10, 64)
				if d := time.Duration(ms) * time.Millisecond; d > e.open {
					e.open, e.openOf = d, name
				}
			case "stats":
				_, _ = fmt.Sscan(rest, &stats[0], &stats[1], &stats[2], &stats[3], &stats[4], &stats[5])
			case "stalled", "stalls":
				e.stalled(name, rest, what == "stalled", returns)
			}
		}
		e.reclaimed, e.allocated, e.lost, e.lostCommits = e.reclaimed+stats[0], e.allocated+stats[1], e.lost+stats[2], e.lostCommits+stats[4]
	}
	return e, nil
}

func (e *chaosEvents) stalled(name, text string, ended bool, returns []time.Time) {
	var begin, end, ms int64
	var clock, stopped bool
	var table string
	if n, _ := fmt.Sscan(text, &begin, &end, &ms, &clock, &stopped, &table); n < 6 {
		return // the last line of a process that was killed
	}
	d := time.Duration(ms) * time.Millisecond
	of := fmt.Sprintf("%s, %s, until %s", name, table, time.Unix(0, end).UTC().Format("15:04:05.000"))
	if clock {
		if d > e.stallClock {
			e.stallClock, e.stallClockOf = d, of
		}
		return
	}
	if d > e.stall {
		e.stall, e.stallOf = d, of
	}
	if stopped {
		return
	}
	for _, back := range slices.Backward(returns) {
		if at := back.UnixNano(); begin < at && at < end {
			if ended {
				e.recovered++
			}
			if d := time.Duration(end - at); d > e.recovery {
				e.recovery, e.recoveryOf = d, of
			}
			break
		}
	}
}
