package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Ordering is how far the order of keys is from the order in which rows become visible.
type Ordering struct {
	For  time.Duration
	Runs []OrderedRun
}

// OrderedRun is one server with so many processes that insert.
type OrderedRun struct {
	Engine, Version string
	Missing         string
	Writers         int
	Kinds           []OrderedKind
}

// OrderedKind is one kind of key.
type OrderedKind struct {
	Name      string
	Rows      int
	Missed    int   // rows that a poller never sees
	Backwards int   // rows whose key is below that of the row before, in the order of commit
	Distances []int // rows by how far ORDER BY id is from the order of commit, see distances
	Most      int   // the largest distance
	Restarts  int
}

// distances are the upper bounds of the classes of OrderedKind.Distances; the last class has no bound.
var distances = []int{0, 1, 2, 4, 8, 16}

// pace is the time from one row of a kind to the next one, on average, of all processes together.
const pace = 2500 * time.Microsecond

// The kinds of keys whose order is measured.
const (
	orderAuto    = "AUTO_INCREMENT"
	orderV7      = "UUIDv7 of google/uuid"
	orderGofrs   = "UUIDv7 of gofrs/uuid"
	orderUID     = "uidplugin"
	orderRolling = "uidplugin in a rolling restart"
)

// orderKinds are the kinds, each with a table.
var orderKinds = []struct{ name, table string }{
	{orderUID, "order_uid"}, {orderAuto, "order_auto"}, {orderV7, "order_v7"}, {orderGofrs, "order_gofrs"},
	{orderRolling, "order_rolling"},
}

type (
	orderedAuto struct {
		ID int64 `gorm:"primaryKey"`
	}
	orderedV7 struct {
		ID string `gorm:"primaryKey;size:36"`
	}
	orderedGofrs struct {
		ID string `gorm:"primaryKey;size:36"`
	}
	orderedUID struct {
		ID uidplugin.ID
	}
	orderedRolling struct {
		ID uidplugin.ID
	}
)

func (orderedUID) TableName() string     { return orderKinds[0].table }
func (orderedAuto) TableName() string    { return orderKinds[1].table }
func (orderedV7) TableName() string      { return orderKinds[2].table }
func (orderedGofrs) TableName() string   { return orderKinds[3].table }
func (orderedRolling) TableName() string { return orderKinds[4].table }

// orderModels are the models of orderKinds.
func orderModels() []any {
	return []any{&orderedAuto{}, &orderedV7{}, &orderedGofrs{}, &orderedUID{}, &orderedRolling{}}
}

// A commit is a row, and when its process had the answer to the INSERT.
type commit struct {
	ID string // of equal length in a table, so that texts sort like keys
	At int64  // ns
}

// measureOrdering measures all engines, with all numbers of processes.
func measureOrdering(ctx context.Context, l *Lab) (*Ordering, error) {
	all := &Ordering{For: l.OrderFor}
	for _, engine := range l.Engines {
		s, err := l.Serve(ctx, engine, "")
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			l.Say("order: no %s: %v", engine, err)
			all.Runs = append(all.Runs, OrderedRun{Engine: engine, Missing: reason(err)})
			continue
		}
		for _, writers := range l.Writers {
			l.Say("order: %s, %d processes, %v", engine, writers, l.OrderFor)
			kinds, err := ordered(ctx, l, s, writers)
			if err != nil {
				s.Remove()
				return nil, fmt.Errorf("%s, %d processes: %w", engine, writers, err)
			}
			all.Runs = append(all.Runs, OrderedRun{Engine: engine, Version: s.Version, Writers: writers, Kinds: kinds})
		}
		s.Remove()
	}
	return all, nil
}

// ordered has processes insert rows of all kinds at the same time, so that all find the same machine, and a poller for
// each kind read them.
func ordered(ctx context.Context, l *Lab, s *Server, writers int) ([]OrderedKind, error) {
	d, drop, err := s.Database()
	if err != nil {
		return nil, err
	}
	defer drop()
	db, err := connect(d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = testkit.Close(db) }()
	if err := db.AutoMigrate(orderModels()...); err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	pollers := make([]*poller, len(orderKinds))
	var polling sync.WaitGroup
	for i, k := range orderKinds {
		reader, err := connect(d)
		if err != nil {
			return nil, err
		}
		defer func() { _ = testkit.Close(reader) }()
		pollers[i] = &poller{db: reader, table: k.table, last: first(k.name), seen: map[string]bool{}}
		polling.Go(func() { pollers[i].run(stop) })
	}
	commits, restarts, err := writeRows(ctx, l, d, writers)
	close(stop)
	polling.Wait()
	if err != nil {
		return nil, err
	}
	kinds := make([]OrderedKind, len(orderKinds))
	for i, k := range orderKinds {
		if pollers[i].err != nil {
			return nil, pollers[i].err
		}
		kinds[i] = judge(k.name, commits[k.name], pollers[i].seen)
		if k.name == orderRolling {
			kinds[i].Restarts = restarts
		}
	}
	return kinds, nil
}

// first returns a value below all keys of a kind.
func first(kind string) any {
	if kind == orderV7 || kind == orderGofrs {
		return ""
	}
	return 0
}

// A poller reads what is behind the last row that it has seen, as many applications do.
type poller struct {
	db    *gorm.DB
	table string
	last  any
	seen  map[string]bool
	err   error
}

// run polls until stop is closed, and once more.
func (p *poller) run(stop <-chan struct{}) {
	for ended := false; !ended && p.err == nil; time.Sleep(2 * time.Millisecond) {
		select {
		case <-stop:
			ended = true
		default:
		}
		var ids []string
		p.err = p.db.Table(p.table).Where("id > ?", p.last).Order("id").Pluck("id", &ids).Error
		for _, id := range ids {
			p.seen[padded(id)] = true
			if n, err := strconv.ParseInt(id, 10, 64); err == nil {
				p.last = n
			} else {
				p.last = id
			}
		}
	}
}

// padded returns a number with as many digits as an int64 can have, and any other text as it is.
func padded(id string) string {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return fmt.Sprintf("%019d", n)
	}
	return id
}

// judge compares the order of keys with the order of commit.
func judge(name string, commits []commit, seen map[string]bool) OrderedKind {
	k := OrderedKind{Name: name, Rows: len(commits), Distances: make([]int, len(distances)+1)}
	slices.SortFunc(commits, func(a, b commit) int { return cmp.Compare(a.At, b.At) })
	byKey := make([]int, len(commits)) // by key, the places in the order of commit
	for i, c := range commits {
		byKey[i] = i
		if !seen[c.ID] {
			k.Missed++
		}
		if i > 0 && c.ID < commits[i-1].ID {
			k.Backwards++
		}
	}
	slices.SortFunc(byKey, func(a, b int) int { return cmp.Compare(commits[a].ID, commits[b].ID) })
	for i, at := range byKey {
		far := max(at-i, i-at)
		k.Most = max(k.Most, far)
		class, _ := slices.BinarySearch(distances, far)
		k.Distances[class]++
	}
	return k
}

// A writing is processes that insert rows.
type writing struct {
	ctx      context.Context
	database *testkit.Database
	pause    time.Duration
	rows     map[string][]commit // by kind
	restarts int
}

// writeRows starts so many processes for each kind. Those of the rolling restart end one after the other, and others
// take their places. It returns the rows by kind.
func writeRows(ctx context.Context, l *Lab, d *testkit.Database, writers int) (map[string][]commit, int, error) {
	w := &writing{ctx: ctx, database: d, pause: time.Duration(writers) * pace, rows: map[string][]commit{}}
	var steady, rolling []*child
	for range writers {
		for _, k := range orderKinds {
			c, err := w.begin(k.name)
			if err != nil {
				return nil, 0, err
			}
			if k.name == orderRolling {
				rolling = append(rolling, c)
			} else {
				steady = append(steady, c)
			}
		}
	}
	for _, c := range slices.Concat(steady, rolling) {
		if err := c.send("go"); err != nil {
			return nil, 0, err
		}
	}
	err := w.restart(l, rolling)
	for _, c := range slices.Concat(steady, rolling) {
		err = errors.Join(err, w.collect(c))
	}
	return w.rows, w.restarts, errors.Join(err, ctx.Err())
}

// begin starts a process of a kind, and waits until it is connected.
func (w *writing) begin(kind string) (*child, error) {
	c, err := launch(w.ctx, "insert", insertTask{Database: w.database, Kind: kind, Pause: w.pause})
	if err == nil {
		_, err = c.read()
	}
	return c, err
}

// collect ends a process and adds its rows.
func (w *writing) collect(c *child) error {
	_ = c.input.Close()
	line, err := c.read()
	if err != nil {
		return err
	}
	var own insertedRows
	if err := json.Unmarshal([]byte(line), &own); err != nil {
		return err
	}
	w.rows[own.Kind] = append(w.rows[own.Kind], own.Commits...)
	return c.stop()
}

// restart restarts one process after the other until the time is over.
func (w *writing) restart(l *Lab, all []*child) (err error) {
	const pause = 2 * time.Second // between two restarts
	for end := time.Now().Add(l.OrderFor); time.Now().Before(end) && w.ctx.Err() == nil; {
		time.Sleep(min(pause, l.OrderFor/3))
		if time.Now().After(end) {
			break
		}
		at := w.restarts % len(all)
		if err := w.collect(all[at]); err != nil {
			return err
		}
		if all[at], err = w.begin(orderRolling); err != nil {
			return err
		}
		if err := all[at].send("go"); err != nil {
			return err
		}
		w.restarts++
		l.Tick("order: %d restarts", w.restarts)
	}
	return nil
}
