package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A Server is a database server, or SQLite.
type Server struct {
	testkit.Engine
	Title string          // with the version
	own   *testkit.Server // nil unless serve has started the server
	dir   string          // of SQLite's files
}

// engineNames are the names of engines in texts.
var engineNames = map[string]string{"mariadb": "MariaDB", "mysql": "MySQL", "postgres": "PostgreSQL",
	"sqlite": "SQLite"}

// eachServer measures all engines, one after the other. It leaves out servers that do not start, because not every
// machine can install all of them.
func (l *Lab) eachServer(ctx context.Context, part, dir string, options func(engine string) []string,
	measure func(s *Server) error) error {
	for _, engine := range l.Engines {
		s, err := l.serve(engine, dir, options(engine))
		if err != nil {
			l.Say("%s: %s left out: %v", part, engine, err)
		} else if err := errors.Join(ctx.Err(), measure(s)); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.Title, err), s.remove())
		}
		if err := errors.Join(ctx.Err(), s.remove()); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a server with options on its command line. Its data is in dir, or in memory if dir is empty. SQLite
// and running servers use neither options nor dir. The caller calls remove, also after an error.
func (l *Lab) serve(engine, dir string, options []string) (s *Server, err error) {
	s = &Server{}
	for _, e := range testkit.Engines() {
		if e.Name == engine {
			s.Engine = e
		}
	}
	version := regexp.MustCompile(`[\d.]+`)
	query := "SELECT VERSION()"
	switch {
	case engine == "sqlite":
		query = "SELECT sqlite_version()"
		if s.dir, err = os.MkdirTemp("", "uidplugin-benchmarks."); err != nil {
			return s, err
		}
	case !l.Running:
		if dir != "" {
			dir = fmt.Sprintf("%s/uidplugin-%s.%d", dir, engine, os.Getpid())
		}
		if s.own, err = s.Up(dir, options...); err != nil {
			return s, err
		}
		s.Engine = s.own.Engine
	case !s.Available():
		return s, fmt.Errorf("%s is not set", s.Variable)
	}
	if engine == "postgres" {
		query = "SHOW server_version"
	}
	return s, s.with(func(_ *testkit.Database, db *gorm.DB) error {
		var text string
		err := db.Raw(query).Row().Scan(&text)
		s.Title = engineNames[engine] + " " + version.FindString(text)
		return err
	})
}

// remove ends the server if serve has started it, and deletes the data of that server or of SQLite.
func (s *Server) remove() error {
	if s.own != nil {
		return s.own.Down()
	}
	return os.RemoveAll(s.dir)
}

// with calls f with a new database and a handle on it.
func (s *Server) with(f func(d *testkit.Database, db *gorm.DB) error) error {
	d, drop, err := s.Create(s.dir)
	if err != nil {
		return err
	}
	db, err := d.Connect(nil)
	if err == nil {
		err = errors.Join(f(d, db), testkit.Close(db))
	}
	return errors.Join(err, drop())
}

// use registers a plugin that logs nothing.
func use(db *gorm.DB, options ...uidplugin.Option) (*uidplugin.Plugin, error) {
	p := uidplugin.New(append(options, uidplugin.WithLogger(nil))...)
	return p, db.Use(p)
}

func closePlugin(p *uidplugin.Plugin) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Close(ctx)
}

type child struct {
	*testkit.Process
	lines chan string
}

// launch starts a child process, which is killed when ctx ends.
func launch(ctx context.Context, role string, task any) (*child, error) {
	c := &child{lines: make(chan string, 10)}
	var err error
	if c.Process, err = testkit.Launch(role, task, func(line string) { c.lines <- line }); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, c.Kill)
	return c, nil
}

// read reads a line of JSON from the process.
func (c *child) read(value any) error {
	select {
	case line := <-c.lines:
		return json.Unmarshal([]byte(line), value)
	case <-c.Done():
	}
	select { // the process has ended, and may have written a last line before
	case line := <-c.lines:
		return json.Unmarshal([]byte(line), value)
	default:
		return errors.Join(errors.New("a child process ended early"), c.Wait())
	}
}

// Counters are counted since the start of a server. A counter that an engine does not have is 0.
type Counters struct {
	Changed   float64 // rows inserted, updated and deleted
	Log       float64 // bytes of redo log or WAL
	Binlog    float64 // bytes
	PagesRead float64 // pages that were not in memory
}

func (s *Server) counters(db *gorm.DB) (c Counters, err error) {
	switch s.Name {
	case "sqlite":
		return c, nil
	case "postgres":
		return c, db.Raw("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").Row().Scan(&c.Log)
	}
	var status []struct{ VariableName, Value string }
	if err := db.Raw("SHOW GLOBAL STATUS").Scan(&status).Error; err != nil {
		return c, err
	}
	written := 0.0
	for _, v := range status {
		var value float64
		_, _ = fmt.Sscan(v.Value, &value) // values that are words are not needed
		switch v.VariableName {
		case "Handler_write", "Handler_update", "Handler_delete":
			c.Changed += value
		case "Innodb_lsn_current":
			c.Log = value
		case "Innodb_os_log_written":
			written = value
		case "Binlog_bytes_written":
			c.Binlog = value
		case "Innodb_buffer_pool_reads":
			c.PagesRead = value
		}
	}
	if c.Log == 0 { // MySQL has no Innodb_lsn_current, and updates Innodb_redo_log_current_lsn too rarely
		c.Log = written
	}
	return c, nil
}

// since returns the difference from earlier, divided by n.
func (c Counters) since(earlier Counters, n float64) Counters {
	return Counters{(c.Changed - earlier.Changed) / n, (c.Log - earlier.Log) / n,
		(c.Binlog - earlier.Binlog) / n, (c.PagesRead - earlier.PagesRead) / n}
}
