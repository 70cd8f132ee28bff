package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A Server is a database server, or a folder of SQLite files.
type Server struct {
	testkit.Engine
	Version string
	folder  string // of SQLite's files; of servers.sh for others, or empty if the server is not ours
	script  string
}

// serial numbers variables of the environment and databases.
var serial atomic.Int64

// serversScript starts and removes servers.
const serversScript = "integration/servers.sh"

// Serve brings up a server with options of its command line. The caller removes it. A folder other than "" is where
// its data goes, which is in memory otherwise.
func (l *Lab) Serve(ctx context.Context, engine, folder string, options ...string) (s *Server, err error) {
	e := testkit.Engine{Name: engine, Variable: "UID_TEST_" + strings.ToUpper(engine)}
	switch {
	case engine == "sqlite":
		s = &Server{Engine: testkit.Engine{Name: engine}}
		if s.folder, err = os.MkdirTemp("", "uidplugin-benchmarks."); err != nil {
			return nil, err
		}
	case l.Running:
		if !e.Available() {
			return nil, fmt.Errorf("%s is not set", e.Variable)
		}
		s = &Server{Engine: e}
	default:
		if s, err = start(ctx, engine, folder, options); err != nil {
			return nil, err
		}
	}
	query := "SELECT VERSION()"
	switch engine {
	case "sqlite":
		query = "SELECT sqlite_version()"
	case "postgres":
		query = "SHOW server_version"
	}
	db, err := s.connect("")
	if err == nil {
		err = errors.Join(db.Raw(query).Row().Scan(&s.Version), testkit.Close(db))
	}
	if err != nil {
		s.Remove()
		return nil, fmt.Errorf("%s: %w", engine, err)
	}
	return s, nil
}

// start runs servers.sh, which installs the engine if it is missing and can be had.
func start(ctx context.Context, engine, folder string, options []string) (*Server, error) {
	if folder != "" {
		folder = filepath.Join(folder, fmt.Sprintf("uidplugin-%s.%d.%d", engine, os.Getpid(), serial.Add(1)))
	}
	c := exec.CommandContext(ctx, serversScript, append([]string{"up", engine, folder}, options...)...)
	var told strings.Builder
	c.Stderr = &told
	// An interrupt of the terminal goes to all of its group, and so also here; the script then cleans up.
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s up %s: %w\n%s", serversScript, engine, err, told.String())
	}
	s := &Server{script: serversScript}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, "'")
		if strings.HasSuffix(key, "_DIR") {
			s.folder = value
			continue
		}
		key = fmt.Sprintf("%s_OWN_%d", key, serial.Add(1)) // child processes read it, too
		s.Engine = testkit.Engine{Name: engine, Variable: key}
		if err := os.Setenv(key, value); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// reason returns the line of an error that says why a server cannot be had.
func reason(err error) string {
	all := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for _, line := range all[1:] {
		if strings.HasPrefix(line, "servers.sh:") {
			all[0] = line // the last of them
		}
	}
	return all[0]
}

// Remove ends a server and deletes its data, unless it is not ours.
func (s *Server) Remove() {
	switch {
	case s.script != "":
		if out, err := exec.Command(s.script, "down", s.folder).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s down %s: %v\n%s", s.script, s.folder, err, out)
		}
	case s.folder != "":
		_ = os.RemoveAll(s.folder)
	}
}

// connect returns a handle on a database of the server; schema may be empty for none.
func (s *Server) connect(schema string) (*gorm.DB, error) {
	if s.Name == "sqlite" && schema == "" {
		schema = filepath.Join(s.folder, "none.db")
	}
	return connect(&testkit.Database{Engine: s.Engine, Schema: schema})
}

// connect returns a handle of which GORM logs nothing.
func connect(d *testkit.Database) (*gorm.DB, error) {
	return d.Connect(&gorm.Config{Logger: logger.Discard})
}

// Database creates an empty database. The function drops it.
func (s *Server) Database() (*testkit.Database, func(), error) {
	d := &testkit.Database{Engine: s.Engine, Schema: fmt.Sprintf("bench_%d_%d", os.Getpid(), serial.Add(1))}
	create, drop := "CREATE DATABASE "+d.Schema, "DROP DATABASE "+d.Schema
	switch s.Name {
	case "sqlite":
		d.Schema = filepath.Join(s.folder, d.Schema+".db")
		create, drop = "PRAGMA user_version = 1", "PRAGMA user_version = 2"
	case "postgres":
		create, drop = "CREATE SCHEMA "+d.Schema, "DROP SCHEMA "+d.Schema+" CASCADE"
	}
	admin := ""
	if s.Name == "sqlite" {
		admin = d.Schema // the file becomes one with a write-ahead log before several processes open it
	}
	db, err := s.connect(admin)
	if err != nil {
		return nil, nil, err
	}
	if err := db.Exec(create).Error; err != nil {
		return nil, nil, errors.Join(err, testkit.Close(db))
	}
	return d, func() {
		if err := errors.Join(db.Exec(drop).Error, testkit.Close(db)); err != nil {
			fmt.Fprintln(os.Stderr, "drop", d.Schema, "failed:", err)
		}
	}, nil
}

// Counters are what a server has done since its start. A counter that an engine does not have is 0.
type Counters struct {
	Statements float64 // Questions
	Changed    float64 // rows inserted, updated and deleted
	Log        float64 // bytes of redo log or WAL
	Binlog     float64 // bytes
	PagesRead  float64 // pages that were not in memory
}

// counters reads them.
func (s *Server) counters(db *gorm.DB) (c Counters, err error) {
	switch s.Name {
	case "sqlite":
		return c, nil
	case "postgres":
		return c, db.Raw("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").Row().Scan(&c.Log)
	}
	rows, err := db.Raw("SHOW GLOBAL STATUS").Rows()
	if err != nil {
		return c, err
	}
	defer rows.Close()
	written := 0.0
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return c, err
		}
		var value float64
		_, _ = fmt.Sscan(text, &value) // others are words
		switch name {
		case "Questions":
			c.Statements = value
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
	if c.Log == 0 { // MySQL; its position in the log is not updated often enough
		c.Log = written
	}
	return c, rows.Err()
}

// since returns what has been done since before.
func (c Counters) since(before Counters) Counters {
	return Counters{c.Statements - before.Statements, c.Changed - before.Changed, c.Log - before.Log,
		c.Binlog - before.Binlog, c.PagesRead - before.PagesRead}
}

// over returns the counters divided by n.
func (c Counters) over(n float64) Counters {
	return Counters{c.Statements / n, c.Changed / n, c.Log / n, c.Binlog / n, c.PagesRead / n}
}
