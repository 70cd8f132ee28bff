// Shards distributes customers over databases that share an id space. It needs only Go, because the databases are four
// SQLite files:
//
//	go run ./examples/shards
//
// With flags the databases are on MySQL or MariaDB, or are keyspaces of Vitess. On Vitess one sharded keyspace has all
// customers, and its vschema must have the table customers:
//
//	go run ./examples/shards -registry 'user:password@tcp(127.0.0.1:3306)/reg' -shard 'user:password@tcp(127.0.0.1:3306)/shop'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Customer is a row of a shard.
type Customer struct {
	uidplugin.Model
	Name string
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the log lines about worker ids, to keep the output short
	var dsns dsns
	flag.StringVar(&dsns.registry, "registry", "", "data source `name` of MySQL with the registry, instead of SQLite")
	flag.Func("shard", "data source `name` of MySQL with customers; repeat it for each shard", func(dsn string) error {
		dsns.shards = append(dsns.shards, dsn)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, dsns)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

// dsns are the data source names of MySQL, if there are any.
type dsns struct {
	registry string
	shards   []string
}

// run returns errors instead of exiting, so that deferred calls run.
func run(ctx context.Context, out io.Writer, dsns dsns) (err error) {
	if (dsns.registry == "") != (len(dsns.shards) == 0) {
		return errors.New("set both -registry and -shard, or neither")
	}
	dir, err := os.MkdirTemp("", "uidplugin-shards")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &shop{ctx: ctx, out: out, shards: map[string]*gorm.DB{}}
	defer func() { err = errors.Join(err, s.close()) }()
	open := func() error { return s.openFiles(dir) }
	if dsns.registry != "" {
		open = func() error { return s.openServers(dsns) }
	}
	if err := open(); err != nil {
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

// openFiles opens the registry and the shards as SQLite files.
func (s *shop) openFiles(dir string) (err error) {
	const params = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
	if s.registry, err = database(sqlite.Open(filepath.Join(dir, "registry.db") + params)); err != nil {
		return err
	}
	for i := range 4 {
		name := fmt.Sprintf("shard%d.db", i+1)
		if err := s.add(name, sqlite.Open(filepath.Join(dir, name)+params)); err != nil {
			return err
		}
	}
	return nil
}

// openServers opens the registry and the shards by data source names of MySQL.
func (s *shop) openServers(dsns dsns) (err error) {
	parameters := func(dsn string) string {
		if strings.Contains(dsn, "?") {
			return dsn + "&parseTime=true"
		}
		return dsn + "?parseTime=true"
	}
	if s.registry, err = database(mysql.Open(parameters(dsns.registry))); err != nil {
		return err
	}
	for i, dsn := range dsns.shards {
		if err := s.add(fmt.Sprintf("shard%d", i+1), mysql.Open(parameters(dsn))); err != nil {
			return err
		}
	}
	return nil
}

// add opens a shard with a plugin. The registry knows the shard by name, because the databases of two shards on
// different servers may be called the same.
func (s *shop) add(name string, dialector gorm.Dialector) error {
	db, err := database(dialector)
	if err != nil {
		return err
	}
	s.names, s.shards[name] = append(s.names, name), db
	err = db.Use(uidplugin.New(uidplugin.WithRegistry(s.registry), uidplugin.WithDatabaseName(name), uidplugin.WithModels(&Customer{})))
	if err != nil {
		return err
	}
	if db.Take(&Customer{}, "id = 0").Error == gorm.ErrRecordNotFound {
		return nil // the table is there; on Vitess AutoMigrate would not see it
	}
	return db.AutoMigrate(&Customer{})
}

func database(dialector gorm.Dialector) (*gorm.DB, error) {
	return gorm.Open(dialector, &gorm.Config{Logger: logger.Discard}) // errors are returned as well
}

// close closes the plugins before the pools, because the plugins need the pools to release their slot.
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
	fmt.Fprintf(s.out, "\n  all ids are of the id space %s, from slot %d\n", space.Space, space.Slot.ID)
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
	if len(s.names) == 1 {
		return nil
	}
	_, err := any.Find(s.ctx, s.ids[1])
	if !errors.Is(err, uidplugin.ErrOtherDatabase) {
		return fmt.Errorf("find in another shard: %w", err)
	}
	fmt.Fprintf(s.out, "\n  %v\n", err)
	return nil
}
