package paths_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var update = flag.Bool("update", false, "TestMatrix writes matrix.md")

// TestMatrix creates rows in every way that GORM has: on all engines, with keys of all kinds, on AUTO_INCREMENT and
// on plain columns. A path is a way to create rows; a cell is a path on one engine with one kind of key. The results
// are in matrix.md: -update writes it, and otherwise the test compares it.
//
// Each path runs first without the plugin and with keys that are set beforehand, because that shows how GORM counts
// rows, and what GORM cannot do.
func TestMatrix(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t)
	m := newMatrix()
	t.Run("engines", func(t *testing.T) {
		for i, column := range matrixColumns {
			t.Run(column.title, func(t *testing.T) {
				t.Parallel()
				column.engine().Need(t)
				runColumn(t, m, i)
			})
		}
	})
	if testing.Short() {
		t.Log("-short: not all kinds of keys have run, so the results are not compared with " + matrixFile)
		return
	}
	m.document(t)
}

// A matrixColumn is an engine in one way of talking to it.
type matrixColumn struct {
	title, name string
	noReturning bool
}

var matrixColumns = []matrixColumn{
	{title: "SQLite", name: "sqlite"},
	{title: "MariaDB", name: "mariadb"},
	{title: "MariaDB, no RETURNING", name: "mariadb", noReturning: true},
	{title: "MySQL", name: "mysql"},
	{title: "PostgreSQL", name: "postgres"},
}

func (c matrixColumn) engine() testkit.Engine {
	return testkit.Engines()[slices.IndexFunc(testkit.Engines(), func(e testkit.Engine) bool { return e.Name == c.name })]
}

// A keyKind is a type of keys, and whether AutoMigrate makes them AUTO_INCREMENT.
type keyKind struct {
	name string
	auto bool
}

// key is the constraint of the keys' types.
type key interface {
	int64 | uint64 | string | uidplugin.ID | *int64
}

var keyKinds = []keyKind{
	{"int64, AUTO_INCREMENT", true},
	{"uint64, AUTO_INCREMENT", true},
	{"*int64, AUTO_INCREMENT", true},
	{"int64", false},
	{"uint64", false},
	{"*int64", false},
	{"string", false},
	{"uidplugin.ID", false},
}

// sameOnServers maps kinds of keys that run on SQLite only to the kinds whose results they have on servers: the two
// differ in Go, and a server gets the same statements.
var sameOnServers = map[string]string{
	"uint64, AUTO_INCREMENT": "int64, AUTO_INCREMENT",
	"uint64":                 "int64",
	"*int64":                 "int64",
}

// shortKinds are the kinds of keys with -short: one of each way in which the plugin sets keys.
var shortKinds = []string{"int64, AUTO_INCREMENT", "string", "uidplugin.ID"}

func runColumn(t *testing.T, m *matrix, column int) {
	for i, k := range keyKinds {
		if like := sameOnServers[k.name]; like != "" && matrixColumns[column].name != "sqlite" {
			m.copyKind(column, i, slices.IndexFunc(keyKinds, func(k keyKind) bool { return k.name == like }))
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			if testing.Short() && !slices.Contains(shortKinds, k.name) {
				t.Skip("-short: only keys of " + strings.Join(shortKinds, "; "))
			}
			switch strings.TrimSuffix(k.name, ", AUTO_INCREMENT") {
			case "int64":
				runKind[int64](t, m, column, i)
			case "uint64":
				runKind[uint64](t, m, column, i)
			case "*int64":
				runKind[*int64](t, m, column, i)
			case "string":
				runKind[string](t, m, column, i)
			default:
				runKind[uidplugin.ID](t, m, column, i)
			}
		})
	}
}

// A path is one way to create rows.
type path[K key] struct {
	name string
	run  func(c *cell[K])

	only   func(column matrixColumn, k keyKind) bool // where the path is to be had; nil: everywhere
	asGORM string                                    // what GORM does here that is not right, with the plugin and without
	refuse string                                    // a part of the message, if the path is refused
	alone  bool                                      // without the plugin there is nothing to compare with
	zero   bool                                      // without the plugin, AUTO_INCREMENT keys are the database's: GORM miscounts others
}

// A group is a chapter of the document.
type group[K key] struct {
	title, note string
	paths       []path[K]
}

func groups[K key]() []group[K] {
	return []group[K]{
		createPaths[K](), batchPaths[K](), savePaths[K](), mapPaths[K](), associationPaths[K](), associationModePaths[K](),
		selectPaths[K](), zeroed(conflictPaths[K]()), sessionPaths[K](), transactionPaths[K](), modelPaths[K](), hookPaths[K](),
		namePaths[K](), genericsPaths[K](), refusedPaths[K](),
	}
}

// zeroed sets zero for all paths of a group.
func zeroed[K key](g group[K]) group[K] {
	for i := range g.paths {
		g.paths[i].zero = true
	}
	return g
}

// once is for paths that have nothing to do with the kind of key.
func once(_ matrixColumn, k keyKind) bool { return strings.HasPrefix(k.name, "int64") }

// A lane is a database for one engine and one kind of key.
type lane[K key] struct {
	*testkit.Database
	column  matrixColumn
	kind    keyKind
	plugin  *uidplugin.Plugin
	with    *gorm.DB // with the plugin
	without *gorm.DB // without it, on the same tables
	tables  []string
	presets int64 // the last key that was set beforehand
	names   int
}

// sentinel is smaller than the keys that the database assigns, and larger than any of our ids.
const sentinel = 9_000_000_000_000_000_000

func newLane[K key](t *testing.T, column matrixColumn, kind keyKind) *lane[K] {
	l := &lane[K]{Database: column.engine().New(t), column: column, kind: kind}
	var options []uidplugin.Option
	if !kind.auto {
		options = append(options, uidplugin.WithModels(matrixModels[K]()...))
	}
	l.with = l.handle(t, &gorm.Config{})
	l.plugin = harness.Use(t, l.with, options...)
	testkit.Must(t, l.with.AutoMigrate(matrixModels[K]()...))
	for _, m := range matrixModels[K]() {
		if _, err := l.plugin.NextID(context.Background(), m); err != nil {
			t.Fatal(err)
		}
	}
	l.without = l.handle(t, &gorm.Config{})
	if !kind.auto {
		// GORM is to know that the keys are plain, as in the handle with the plugin.
		harness.Use(t, l.without, options...)
		withoutCallbacks(t, l.without)
	}
	l.prepare(t)
	return l
}

// handle opens a database handle.
func (l *lane[K]) handle(t *testing.T, config *gorm.Config) *gorm.DB {
	t.Helper()
	config.Logger, config.DisableForeignKeyConstraintWhenMigrating = logger.Discard, true
	var dialector gorm.Dialector
	switch {
	case l.column.noReturning:
		dialector = mysql.New(mysql.Config{DSN: l.DSN(), DisableWithReturning: true})
	case l.Name == "sqlite":
		// Nothing waits for another connection here, unless a panic left a transaction open.
		dsn := strings.Replace(l.DSN(), "busy_timeout(10000)", "busy_timeout(2000)", 1)
		dialector = sqlite.Open(dsn + "&_pragma=synchronous(OFF)")
	case l.Name == "mysql":
		// It counts the rows of a table with several threads, and takes long to start them.
		dialector = l.Dialector(l.DSN("innodb_parallel_read_threads=1"))
	default:
		dialector = l.Dialector(l.DSN())
	}
	db, err := gorm.Open(dialector, config)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	})
	testkit.Must(t, db.SetupJoinTable(owner(&mMember[K]{}), "Tags", &mMemberTag[K]{}))
	return db
}

// withoutCallbacks takes the plugin's callbacks away from a handle.
func withoutCallbacks(t *testing.T, db *gorm.DB) {
	t.Helper()
	create, update := db.Callback().Create(), db.Callback().Update()
	for _, name := range []string{"fill", "refill", "before_insert", "after_insert"} {
		if create.Get("uidplugin:"+name) == nil {
			t.Fatalf("there is no callback %s", name)
		}
		testkit.Must(t, create.Remove("uidplugin:"+name))
	}
	for _, name := range []string{"prepare", "before_update"} {
		testkit.Must(t, update.Remove("uidplugin:"+name))
	}
}

// outcome is the result of a path, with the plugin or without.
type outcome struct {
	err      error
	panicked bool
	trace    string // rows affected, rows in tables, and what the path noted
	problems []string
	remarks  []string
}

// result is the text of a cell.
type result struct {
	mark mark
	text string
}

type mark int

const (
	absent mark = iota // the path is not to be had there
	right
	asGORM
	refused
	wrong
)

func runKind[K key](t *testing.T, m *matrix, column, kind int) {
	l := newLane[K](t, matrixColumns[column], keyKinds[kind])
	for _, g := range groups[K]() {
		for _, p := range g.paths {
			r := result{}
			if p.only == nil || p.only(l.column, l.kind) {
				if r = l.judge(t, p); r.mark == wrong {
					t.Errorf("%s on %s, keys %s: %s", p.name, l.column.title, l.kind.name, r.text)
				}
			}
			m.add(g.title, p.name, column, kind, r)
		}
	}
}

// judge runs a path without the plugin and with it, and compares.
func (l *lane[K]) judge(t *testing.T, p path[K]) result {
	var reference outcome
	if !p.alone {
		reference = l.run(t, p, l.without, true)
	}
	got := l.run(t, p, l.with, false)
	same := !p.alone && reference.panicked == got.panicked && reference.trace == got.trace && sameError(reference.err, got.err)
	switch {
	case p.refuse != "" && got.err != nil:
		if got.panicked || !strings.Contains(got.err.Error(), p.refuse) {
			return result{wrong, fmt.Sprintf("the message is %v, want %q", got.err, p.refuse)}
		}
		if got.trace != "" {
			return result{wrong, "refused, but it left " + got.trace}
		}
		o := mOrder[K]{Name: "next"}
		if err := l.with.Create(&o).Error; err != nil || number(o.ID) == 0 {
			return result{wrong, fmt.Sprintf("after the refusal, a create: %v", err)}
		}
		return result{mark: refused}
	case p.asGORM != "" && same && (got.err != nil || len(got.problems) > 0 || p.asGORM[0] == '='):
		return result{asGORM, strings.TrimPrefix(p.asGORM, "=")}
	case got.err != nil:
		return result{wrong, fmt.Sprintf("%v (without the plugin: %v)", got.err, reference.err)}
	case len(got.problems) > 0:
		return result{wrong, strings.Join(got.problems, "; ") + " [" + got.trace + "]"}
	case !p.alone && reference.err == nil && !same:
		return result{wrong, fmt.Sprintf("counts %q, without the plugin %q", got.trace, reference.trace)}
	}
	return result{right, strings.Join(got.remarks, "; ")}
}

// numbers differ from run to run.
var numbers = regexp.MustCompile(`\d+`)

// sameError reports whether an error is that of the reference, which the plugin may explain.
func sameError(reference, got error) bool {
	if reference == nil || got == nil {
		return reference == got
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(reference, known) || errors.Is(got, known) {
			return errors.Is(reference, known) && errors.Is(got, known)
		}
	}
	without := func(err error) string { return numbers.ReplaceAllString(err.Error(), "") }
	return without(got) == without(reference) || strings.HasSuffix(without(got), ": "+without(reference))
}

// run runs a path on one handle.
func (l *lane[K]) run(t *testing.T, p path[K], db *gorm.DB, reference bool) (o outcome) {
	// A panic of GORM leaves its transaction open, until the context ends.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &cell[K]{lane: l, t: t, db: db.WithContext(ctx), reference: reference, zero: p.zero, set: map[int64]bool{}}
	before := l.count(t)
	func() {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case stop:
				o.err = r.err
			default:
				o.err, o.panicked = fmt.Errorf("panic: %v", r), true
			}
		}()
		p.run(c)
	}()
	pool, err := db.DB()
	testkit.Must(t, err)
	// What ends a transaction with its context does so in the background, and a renewal may be under way.
	patience := time.Minute
	if o.panicked { // its connection is left open for sure
		patience = 200 * time.Millisecond
	}
	for deadline := time.Now().Add(patience); pool.Stats().InUse > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if pool.Stats().InUse > 0 {
		c.note("connections left open: %d", pool.Stats().InUse)
		c.check(false, "a connection was left open")
	}
	cancel()
	for deadline := time.Now().Add(time.Minute); pool.Stats().InUse > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: a connection was left open for good (%v)", p.name, o.err)
		}
	}
	after := l.count(t)
	for i, table := range l.tables {
		if n := after[i] - before[i]; n != 0 {
			c.note("%s%+d", table, n)
		}
	}
	for _, f := range c.cleanups {
		f()
	}
	o.trace, o.problems, o.remarks = strings.Join(c.trace, " "), c.problems, slices.Compact(c.remarks)
	return o
}
