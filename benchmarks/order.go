package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Ordered compares the order of one kind of key with the order in which rows became visible.
type Ordered struct {
	Engine    string
	Writers   int // processes that insert
	Kind      string
	Rows      int
	Missed    int   // rows that a poller never sees
	Distances []int // rows by the places between ORDER BY id and the order of commit; see distances

	Import *Imported `json:",omitempty"` // of an import, which sets only this and Engine
}

// distances are the upper bounds of the classes of Ordered.Distances; the last class has no bound.
var distances = []int{0, 1, 2, 4, 8, 16}

// pace is the average time between two rows of a kind, over all processes.
const pace = 2500 * time.Microsecond

// The kinds of keys whose order is measured.
const (
	orderAuto    = "AUTO_INCREMENT"
	orderV7      = "UUIDv7 of google/uuid"
	orderGofrs   = "UUIDv7 of gofrs/uuid"
	orderUID     = "uidplugin"
	orderRolling = "uidplugin in a rolling restart"
)

type (
	orderedAuto struct {
		ID int64 `gorm:"primaryKey"`
	}
	orderedV7 struct {
		ID string `gorm:"primaryKey;size:36"`
	}
	orderedGofrs   orderedV7
	orderedUID     struct{ ID uidplugin.ID }
	orderedRolling orderedUID
)

// An orderKind is a kind of key, with a table.
type orderKind struct {
	name  string
	model any
	key   func() string // nil: the plugin or the database makes the key
}

var orderKinds = []orderKind{
	{orderUID, &orderedUID{}, nil},
	{orderAuto, &orderedAuto{}, nil},
	{orderV7, &orderedV7{}, func() string { return uuid.Must(uuid.NewV7()).String() }},
	{orderGofrs, &orderedGofrs{}, func() string { return gofrs.Must(gofrs.NewV7()).String() }},
	{orderRolling, &orderedRolling{}, nil},
}

// insert creates a row, and returns its key.
func (k orderKind) insert(db *gorm.DB) (string, error) {
	row := reflect.New(reflect.TypeOf(k.model).Elem())
	id := row.Elem().Field(0)
	if k.key != nil {
		id.SetString(k.key())
	}
	err := db.Create(row.Interface()).Error
	return fmt.Sprint(id.Interface()), err
}

// A commit is a row, and the time after its INSERT, because few databases show the time of a commit.
type commit struct {
	ID string // insertRows pads it, so that texts sort like keys
	At int64  // ns; in the function imported, the time before the INSERT
}

func measureOrder(ctx context.Context, l *Lab) (all []Ordered, err error) {
	options := func(string) []string { return nil }
	return all, l.eachServer(ctx, "order", "", options, func(s *Server) error {
		for _, writers := range l.Writers {
			l.Say("order: %s, %d processes, %v", s.Title, writers, l.OrderFor)
			if err := s.with(func(d *testkit.Database, db *gorm.DB) error {
				kinds, err := ordered(ctx, l, d, db, writers)
				for _, k := range kinds {
					k.Engine, k.Writers = s.Title, writers
					all = append(all, k)
				}
				return err
			}); err != nil {
				return fmt.Errorf("%d processes: %w", writers, err)
			}
		}
		imports, err := measureImports(ctx, l, s)
		all = append(all, imports...)
		return err
	})
}

// ordered lets processes insert rows of all kinds at the same time, so that the machine is equally busy for all.
func ordered(ctx context.Context, l *Lab, d *testkit.Database, db *gorm.DB, writers int) (all []Ordered, err error) {
	stop := make(chan struct{})
	pollers := make([]*poller, len(orderKinds))
	var polling sync.WaitGroup
	for i, k := range orderKinds {
		if err := db.AutoMigrate(k.model); err != nil {
			return nil, err
		}
		reader, err := d.Connect(nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = testkit.Close(reader) }()
		pollers[i] = &poller{db: reader, kind: k, seen: map[string]bool{}}
	}
	for _, p := range pollers {
		polling.Go(func() { p.run(stop) })
	}
	rows, err := writeRows(ctx, l, d, writers)
	close(stop)
	polling.Wait()
	for i, k := range orderKinds {
		err = errors.Join(err, pollers[i].err)
		all = append(all, judge(k.name, rows[k.name], pollers[i].seen))
	}
	return all, err
}

// A poller reads the rows behind the last row that it has seen, as many applications do.
type poller struct {
	db   *gorm.DB
	kind orderKind
	seen map[string]bool
	err  error
}

// run polls until stop is closed, and once more.
func (p *poller) run(stop <-chan struct{}) {
	var last any = 0
	if p.kind.key != nil {
		last = ""
	}
	for ended := false; !ended && p.err == nil; time.Sleep(2 * time.Millisecond) {
		select {
		case <-stop:
			ended = true
		default:
		}
		var ids []string
		p.err = p.db.Model(p.kind.model).Where("id > ?", last).Order("id").Pluck("id", &ids).Error
		for _, id := range ids {
			p.seen[padded(id)] = true
			last = id
			if n, err := strconv.ParseInt(id, 10, 64); err == nil {
				last = n
			}
		}
	}
}

// padded returns a number with as many digits as an int64 can have, and any other text unchanged.
func padded(id string) string {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return fmt.Sprintf("%019d", n)
	}
	return id
}

// judge compares the order of keys with the order of commit.
func judge(kind string, commits []commit, seen map[string]bool) Ordered {
	k := Ordered{Kind: kind, Rows: len(commits), Distances: make([]int, len(distances)+1)}
	slices.SortFunc(commits, func(a, b commit) int { return cmp.Compare(a.At, b.At) })
	byKey := make([]int, len(commits)) // places in the order of commit, sorted by key below
	for i, c := range commits {
		byKey[i] = i
		if !seen[c.ID] {
			k.Missed++
		}
	}
	slices.SortFunc(byKey, func(a, b int) int { return cmp.Compare(commits[a].ID, commits[b].ID) })
	for i, at := range byKey {
		far := max(at-i, i-at)
		class, _ := slices.BinarySearch(distances, far)
		k.Distances[class]++
	}
	return k
}

// writeRows returns rows by kind. In the rolling restart, new processes replace the others, one after the other.
func writeRows(ctx context.Context, l *Lab, d *testkit.Database, writers int) (map[string][]commit, error) {
	rows := map[string][]commit{}
	begin := func(kind int) (c *child, err error) {
		var ready bool
		if c, err = launch(ctx, "insert", insertTask{d, kind, time.Duration(writers) * pace}); err == nil {
			err = c.read(&ready)
		}
		return c, err
	}
	collect := func(c *child, kind int) error {
		var own []commit
		err := errors.Join(c.End(), c.read(&own), c.Wait())
		rows[orderKinds[kind].name] = append(rows[orderKinds[kind].name], own...)
		return err
	}
	all := make([]*child, writers*len(orderKinds))
	for i := range all {
		c, err := begin(i % len(orderKinds))
		if err != nil {
			return nil, err
		}
		defer c.Kill()
		all[i] = c
	}
	for _, c := range all {
		if err := c.Send("go"); err != nil {
			return nil, err
		}
	}
	rolling := len(orderKinds) - 1
	end := time.Now().Add(l.OrderFor)
	for i := rolling; ; i = (i + len(orderKinds)) % len(all) {
		if err := sleep(ctx, min(2*time.Second, l.OrderFor/3)); err != nil {
			return nil, err
		}
		if time.Now().After(end) {
			break
		}
		err := collect(all[i], rolling)
		if err == nil {
			all[i], err = begin(rolling)
		}
		if err == nil {
			err = all[i].Send("go")
		}
		if err != nil {
			return nil, err
		}
		defer all[i].Kill()
	}
	var err error
	for i, c := range all {
		err = errors.Join(err, collect(c, i%len(orderKinds)))
	}
	return rows, err
}

type insertTask struct {
	Database *testkit.Database
	Kind     int           // of orderKinds
	Pause    time.Duration // from one row to the next one, on average
}

// insertRows is the role of a process that inserts. It prints a line, waits for a line, inserts until its input
// ends, and prints all rows as one line.
func insertRows(task insertTask) (err error) {
	kind := orderKinds[task.Kind]
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	if kind.name == orderUID || kind.name == orderRolling {
		p, err := use(db, uidplugin.WithModels(kind.model))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closePlugin(p)) }()
	}
	fmt.Println("true")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	stop := testkit.InputEnded()
	var rows []commit
	for ended := false; !ended; {
		id, err := kind.insert(db)
		if err != nil {
			return err
		}
		rows = append(rows, commit{padded(id), time.Now().UnixNano()})
		select {
		case <-stop:
			ended = true
		case <-time.After(rand.N(2 * task.Pause)):
		}
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// goalPoints is how much more a poller may miss than with UUIDv7, in percentage points.
const goalPoints = 0.2

// missed returns the rows that a poller misses, in percent.
func (o Ordered) missed() float64 { return 100 * float64(o.Missed) / float64(max(1, o.Rows)) }

// more returns how many percentage points more a poller misses with kind than with other, as a 95 % confidence
// interval, and whether the goal is met.
func more(kind, other Ordered) (points, verdict string) {
	a, b := kind.missed(), other.missed()
	chance := 1.96 * math.Sqrt(a*(100-a)/float64(max(1, kind.Rows))+b*(100-b)/float64(max(1, other.Rows)))
	switch {
	case a-b+chance <= goalPoints:
		verdict = "met"
	case a-b-chance > goalPoints:
		verdict = "missed"
	default:
		verdict = "undecided"
	}
	return fmt.Sprintf("%+.2f ± %.2f", a-b, chance), verdict
}

func orderTable(all []Ordered) string {
	sums := map[string]Ordered{}
	for _, k := range all {
		sum := sums[k.Kind]
		sums[k.Kind] = Ordered{Rows: sum.Rows + k.Rows, Missed: sum.Missed + k.Missed}
	}
	goals := table{{"all runs", "missed", "points more than google/uuid", "goal", "points more than gofrs/uuid", "goal"}}
	for _, k := range orderKinds {
		sum := sums[k.name]
		row := []string{k.name, percent(sum.Missed, sum.Rows)}
		if k.name == orderUID || k.name == orderRolling {
			for _, other := range []string{orderV7, orderGofrs} {
				points, verdict := more(sum, sums[other])
				row = append(row, points, verdict)
			}
		}
		goals.add(row...)
	}
	return goals.String() + importTable(all)
}

func drawOrder(all []Ordered, folder string) error {
	var titles, classes []string
	missed, places := make([]series, len(orderKinds)), make([]series, len(orderKinds))
	runs := orderRuns(all)
	histogramOf := runs[0] // of the first engine, with most processes
	for _, run := range runs {
		engine, _, _ := strings.Cut(run[0].Engine, " ")
		titles = append(titles, fmt.Sprintf("%s\n%d", engine, run[0].Writers))
		if run[0].Engine == histogramOf[0].Engine {
			histogramOf = run
		}
		for i, k := range run {
			missed[i].name, missed[i].y = k.Kind, append(missed[i].y, k.missed())
		}
	}
	for i, k := range histogramOf {
		places[i].name = k.Kind
		for _, n := range k.Distances {
			places[i].y = append(places[i].y, 100*float64(n)/float64(max(1, k.Rows)))
		}
	}
	low := 0
	for _, high := range distances {
		class := fmt.Sprintf("%d–%d", low, high)
		if low == high {
			class = fmt.Sprint(high)
		}
		classes, low = append(classes, class), high+1
	}
	classes = append(classes, fmt.Sprintf("%d…", low))
	err := histogram(filepath.Join(folder, "missed.svg"), "Rows that a poller never sees", "processes", "% of the rows",
		titles, missed...)
	return errors.Join(err, histogram(filepath.Join(folder, "order.svg"),
		fmt.Sprintf("%s with %d processes", histogramOf[0].Engine, histogramOf[0].Writers),
		"places between ORDER BY id and the order of commit", "% of the rows", classes, places...))
}
