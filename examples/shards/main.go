// Shards distributes customers over four databases that share an id space. It needs only Go, because the databases are
// SQLite files:
//
//	go run ./examples/shards
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Customer is a row of a shard.
type Customer struct {
	uidplugin.Model
	Name string
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the assignment of worker ids, because the example prints the slot
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

// run returns errors instead of exiting, so that deferred calls run.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "uidplugin-shards")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &shop{ctx: ctx, out: out, shards: map[string]*gorm.DB{}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(dir); err != nil {
		return err
	}
	for _, part := range []func() error{s.create, s.find} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// A shop stores its customers in several databases.
type shop struct {
	ctx      context.Context
	out      io.Writer
	registry *gorm.DB
	names    []string // names of the shards
	shards   map[string]*gorm.DB
	ids      []uidplugin.ID
}

// open opens the registry and the shards, each with a plugin.
func (s *shop) open(dir string) (err error) {
	if s.registry, err = database(filepath.Join(dir, "registry.db")); err != nil {
		return err
	}
	for i := range 4 {
		name := fmt.Sprintf("shard%d.db", i+1)
		db, err := database(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		s.names, s.shards[name] = append(s.names, name), db
		if err := db.Use(uidplugin.New(uidplugin.WithRegistry(s.registry), uidplugin.WithModels(&Customer{}))); err != nil {
			return err
		}
		if err := db.AutoMigrate(&Customer{}); err != nil {
			return err
		}
	}
	return nil
}

// database opens a SQLite file.
func database(path string) (*gorm.DB, error) {
	return gorm.Open(sqlite.Open(path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"),
		&gorm.Config{Logger: logger.Discard}) // errors are returned as well
}

// close closes the plugins first, because that releases the slot, and then the pools.
func (s *shop) close() (err error) {
	all := append([]*gorm.DB{}, s.registry)
	for _, db := range s.shards {
		err = errors.Join(err, uidplugin.From(db).Close(context.WithoutCancel(s.ctx)))
		all = append(all, db)
	}
	for _, db := range all {
		if db == nil {
			continue
		}
		pool, e := db.DB()
		if e == nil {
			e = pool.Close()
		}
		err = errors.Join(err, e)
	}
	return err
}

// create creates customers on all shards.
func (s *shop) create() error {
	fmt.Fprint(s.out, "1. Rows of all shards have different ids\n\n")
	for i, name := range []string{"Ada", "Bob", "Cem", "Dot", "Eve", "Fay"} {
		shard := s.names[i%len(s.names)]
		c := Customer{Name: name}
		if err := s.shards[shard].WithContext(s.ctx).Create(&c).Error; err != nil {
			return err
		}
		s.ids = append(s.ids, c.ID)
		fmt.Fprintf(s.out, "  %s  %s  %d\n", shard, name, c.ID)
	}
	space := uidplugin.From(s.shards[s.names[0]]).Stats()
	fmt.Fprintf(s.out, "\n  all of the id space %s, from slot %d\n", space.Space, space.Slot.ID)
	return nil
}

// find finds the rows of ids. Any plugin can locate the shard.
func (s *shop) find() error {
	fmt.Fprint(s.out, "\n2. An id leads to its shard, and there to its row\n\n")
	any := uidplugin.From(s.shards[s.names[0]])
	for _, id := range s.ids {
		where, err := any.Locate(s.ctx, id)
		if err != nil {
			return err
		}
		row, err := uidplugin.From(s.shards[where.Database]).Find(s.ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "  %d  %s  %s of %s\n", id, where.Database, row.(*Customer).Name, where.Table)
	}
	_, err := any.Find(s.ctx, s.ids[1])
	if !errors.Is(err, uidplugin.ErrOtherDatabase) {
		return fmt.Errorf("find in another shard: %w", err)
	}
	fmt.Fprintf(s.out, "\n  %v\n", err)
	return nil
}
