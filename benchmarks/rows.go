package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Inserting is what rows cost in real databases, by the kind of their keys.
type Inserting struct {
	Rows, Chunk, PoolMB int
	Engines             []InsertedEngine
}

// InsertedEngine is one database server.
type InsertedEngine struct {
	Engine, Version string
	Missing         string // why nothing was measured
	Rows            int    // in each table
	Stopped         bool   // before all were inserted, as the time was over
	Kinds           []InsertedKind
}

// InsertedKind is one table.
type InsertedKind struct {
	Name      string
	Curve     []float64 // rows a second, chunk by chunk
	Rate      float64   // of all rows
	LastRate  Figure    // of the last quarter of the chunks
	Log       float64   // bytes of redo log or WAL for a row
	PagesRead float64   // for 1,000 rows
	TableMB   float64   // with the primary key
	IndexMB   float64   // secondary indexes; the primary key, too, on PostgreSQL
	Lookup    Figure    // us for a row by its key
	Join      Figure    // us for the rows of a customer, joined with their parents
}

// A keyed is a table to be measured.
type keyed interface {
	name() string
	open(l *Lab, d *testkit.Database) error
	insert(n int) error  // n rows, in batches
	lookup() error       // one row, at random
	join(rows int) error // the rows of one customer, at random
	table() string
	close() error
}

// measureInserting measures all engines, one after the other.
func measureInserting(ctx context.Context, l *Lab) (*Inserting, error) {
	all := &Inserting{Rows: l.Rows, Chunk: l.Chunk, PoolMB: l.PoolMB}
	for _, engine := range l.Engines {
		e := InsertedEngine{Engine: engine}
		s, err := l.Serve(ctx, engine, l.Data, smallPool(engine, l.PoolMB)...)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			e.Missing = reason(err)
			l.Say("rows: no %s: %v", engine, err)
			all.Engines = append(all.Engines, e)
			continue
		}
		e.Version = s.Version
		err = insertInto(ctx, l, s, &e)
		s.Remove()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", engine, err)
		}
		all.Engines = append(all.Engines, e)
	}
	return all, nil
}

// smallPool returns the options of a server with so little memory for pages, and a redo log of usual size.
func smallPool(engine string, mb int) []string {
	pool := fmt.Sprintf("--innodb-buffer-pool-size=%dM", mb)
	switch engine {
	case "mariadb":
		return []string{pool, "--innodb-log-file-size=96M", "--innodb-flush-method=O_DIRECT"}
	case "mysql":
		return []string{pool, "--innodb-redo-log-capacity=100M", "--innodb-flush-method=O_DIRECT"}
	}
	return []string{"-c", fmt.Sprintf("shared_buffers=%dMB", mb), "-c", "max_wal_size=1GB"}
}

// insertInto measures one server: rows, chunk by chunk, each chunk into the next table. Then sizes, lookups and joins.
func insertInto(ctx context.Context, l *Lab, s *Server, e *InsertedEngine) (err error) {
	d, drop, err := s.Database()
	if err != nil {
		return err
	}
	defer drop()
	db, err := connect(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	tables := keyedTables()
	for _, t := range tables {
		defer func() { err = errors.Join(err, t.close()) }()
		if err := t.open(l, d); err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
		e.Kinds = append(e.Kinds, InsertedKind{Name: t.name()})
	}
	if err := insertChunks(ctx, l, s, db, tables, e); err != nil {
		return err
	}
	for i, t := range tables {
		k := &e.Kinds[i]
		k.LastRate = figureOf(k.Curve[len(k.Curve)*3/4:])
		if k.TableMB, k.IndexMB, err = s.sizes(db, t.table()); err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
	}
	l.Say("rows: %s, lookups and joins", s.Name)
	return readRows(ctx, l, tables, e)
}

// insertChunks inserts all rows and notes how fast. It inserts fewer if the time is over.
func insertChunks(ctx context.Context, l *Lab, s *Server, db *gorm.DB, tables []keyed, e *InsertedEngine) error {
	chunks := l.Rows / l.Chunk
	seconds, logged, pages := make([]float64, len(tables)), make([]float64, len(tables)), make([]float64, len(tables))
	begun, next := time.Now(), turns(len(tables))
	for chunk := range chunks {
		if time.Since(begun) > l.RowsFor {
			l.Say("rows: %s, the time is over after %d of %d rows", s.Name, e.Rows, l.Rows)
			e.Stopped = true
			break
		}
		for _, i := range next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			before, err := s.counters(db)
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := tables[i].insert(l.Chunk); err != nil {
				return fmt.Errorf("%s: %w", tables[i].name(), err)
			}
			took := time.Since(begin).Seconds()
			after, err := s.counters(db)
			if err != nil {
				return err
			}
			done := after.since(before)
			seconds[i], logged[i], pages[i] = seconds[i]+took, logged[i]+done.Log, pages[i]+done.PagesRead
			e.Kinds[i].Curve = append(e.Kinds[i].Curve, float64(l.Chunk)/took)
			l.Tick("rows: %s %s, %d of %d rows in each table", s.Name, s.Version, chunk*l.Chunk, l.Rows)
		}
		e.Rows += l.Chunk
	}
	for i := range e.Kinds {
		k, rows := &e.Kinds[i], float64(e.Rows)
		k.Rate, k.Log, k.PagesRead = rows/seconds[i], logged[i]/rows, pages[i]/rows*1000
	}
	return nil
}

// readRows measures lookups and joins, interleaved, a few at a time.
func readRows(ctx context.Context, l *Lab, tables []keyed, e *InsertedEngine) error {
	const rounds = 10
	var contestants []func() (sample, error)
	timed := func(n int, f func() error) func() (sample, error) {
		return func() (sample, error) {
			begin := time.Now()
			for range n {
				if err := f(); err != nil {
					return sample{}, err
				}
			}
			return sample{value: float64(time.Since(begin).Microseconds()) / float64(n)}, nil
		}
	}
	for _, t := range tables {
		contestants = append(contestants, timed(max(1, l.Lookups/rounds), t.lookup),
			timed(max(1, l.Joins/rounds), func() error { return t.join(e.Rows) }))
	}
	figures, err := interleave(ctx, rounds, contestants, nil)
	for i := range e.Kinds {
		if err == nil {
			e.Kinds[i].Lookup, e.Kinds[i].Join = figures[2*i], figures[2*i+1]
		}
	}
	return err
}

// sizes returns the megabytes of a table and of its secondary indexes.
func (s *Server) sizes(db *gorm.DB, table string) (data, index float64, err error) {
	const mb = 1 << 20
	switch s.Name {
	case "sqlite":
		return 0, 0, nil
	case "postgres":
		err = db.Raw("SELECT pg_table_size(?::regclass)::float8, pg_indexes_size(?::regclass)::float8", table,
			table).Row().Scan(&data, &index)
	default:
		if err = db.Exec("ANALYZE TABLE " + table).Error; err != nil {
			return 0, 0, err
		}
		hint := "" // MySQL remembers sizes for a day otherwise
		if s.Name == "mysql" {
			hint = "/*+ SET_VAR(information_schema_stats_expiry=0) */ "
		}
		err = db.Raw("SELECT "+hint+"DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES"+
			" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?", table).Row().Scan(&data, &index)
	}
	return data / mb, index / mb, err
}
