package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A RemovalStep is a part of removing the plugin from a database.
type RemovalStep struct {
	Database string   `json:"database,omitempty"` // as in WORKER_NODE; empty for the database of --dsn
	Text     string   `json:"text"`
	SQL      []string `json:"sql,omitempty"`  // on one connection, in this order
	Left     bool     `json:"left,omitempty"` // no statement does this, so people have to do it

	on   *DB
	exec func(ctx context.Context, statement string) error // runs the statements; if nil, the connection does
}

// A Removal is a plan to remove the plugin.
type Removal struct {
	Steps []RemovalStep

	// Refused is nil, or the reason why Run does nothing, such as processes that hold slots.
	Refused error
}

// Removal plans the removal of the plugin, and changes nothing. The plan makes the database number the keys of the
// named tables, too. The registry need not exist.
func (d *DB) Removal(ctx context.Context, named []string) (r Removal, err error) {
	known, unseen, err := d.knownTables(ctx)
	if err != nil {
		return r, err
	}
	r.Refused = unseenError(unseen)
	for _, plan := range []func(context.Context, []workernode.Table) ([]RemovalStep, error){
		d.planFollow,   // wing: follow
		d.planSegments, // wing: segment
		func(ctx context.Context, known []workernode.Table) ([]RemovalStep, error) {
			return d.planKeys(ctx, known, named)
		},
		d.planFunctions, d.planTables,
	} {
		steps, err := plan(ctx, known)
		if err != nil {
			return r, err
		}
		r.Steps = append(r.Steps, steps...)
	}
	for _, check := range []func(context.Context) (refusal, err error){
		d.held,
		d.unhandled, // wing: follow
	} {
		refusal, err := check(ctx)
		if err != nil {
			return r, err
		}
		r.Refused = errors.Join(r.Refused, refusal)
	}
	return r, nil
}

// Run runs the statements, and calls done after each step. After an error, run a new plan of [DB.Removal].
func (r Removal) Run(ctx context.Context, done func(RemovalStep) error) error {
	if r.Refused != nil {
		return r.Refused
	}
	for _, s := range r.Steps {
		if err := s.run(ctx); err != nil {
			return err
		}
		if err := done(s); err != nil {
			return err
		}
	}
	return nil
}

func (s RemovalStep) run(ctx context.Context) error {
	if len(s.SQL) == 0 {
		return nil
	}
	return s.on.SQL.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		for _, statement := range s.SQL {
			execute := func() error { return conn.ExecRaw(ctx, statement) }
			if s.exec != nil {
				execute = func() error { return s.exec(ctx, statement) }
			}
			if err := execute(); err != nil {
				return fmt.Errorf("%s: %w; run the command again when this statement can succeed", statement, err)
			}
		}
		return nil
	})
}

// hasSpace reports whether the registry was read.
func (d *DB) hasSpace() bool { return d.Registry.Space != "" }

// databases returns this database and the others, by their names in WORKER_NODE.
func (d *DB) databases() (names []string, byName map[string]*DB) {
	byName = map[string]*DB{"": d}
	maps.Copy(byName, d.Others)
	return slices.Sorted(maps.Keys(byName)), byName
}

// knownTables returns the tables in WORKER_NODE. In databases without a connection it only counts them.
func (d *DB) knownTables(ctx context.Context) (known []workernode.Table, unseen map[string]int, err error) {
	if !d.hasSpace() {
		return nil, nil, nil
	}
	known, err = d.TableNames(ctx)
	if err != nil && noTable.MatchString(err.Error()) {
		return nil, nil, nil // an earlier run was interrupted after it had dropped WORKER_NODE
	}
	unseen = map[string]int{}
	known = slices.DeleteFunc(known, func(t workernode.Table) bool {
		if t.Database == "" || d.Others[t.Database] != nil {
			return false
		}
		unseen[t.Database]++
		return true
	})
	return known, unseen, err
}

// tablesOf returns the names of a database's tables, perhaps with schemas.
func tablesOf(known []workernode.Table, database string) (names []string) {
	for _, t := range known {
		if t.Database == database {
			names = append(names, t.Name)
		}
	}
	return names
}

func (d *DB) held(ctx context.Context) (refusal, err error) {
	if !d.hasSpace() {
		return nil, nil
	}
	var holders []string
	for _, state := range []string{"live", "idle", "overdue"} {
		slots, err := d.Slots(ctx, state, Filter{}, 0, MaxPage)
		if err != nil && noTable.MatchString(err.Error()) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, s := range slots {
			holders = append(holders, fmt.Sprintf("%s on %s, port %s (%s)", s.Application, s.Host, s.Port, s.State))
		}
	}
	if len(holders) == 0 {
		return nil, nil
	}
	more := ""
	if len(holders) > 3 {
		more = fmt.Sprintf(" and %d more", len(holders)-3)
	}
	return fmt.Errorf("processes with the plugin run: %s%s; end them first. A killed one is listed for 70 seconds, "+
		`on SQLite for 11 minutes; "uid slots" lists all`, strings.Join(holders[:min(len(holders), 3)], ", "), more), nil
}

// functionsOf has the queries, by dialect, that find the view and the functions of migrations.CreateFunctions.
var functionsOf = map[string]string{
	mysql: `SELECT 'VIEW', table_name, '' FROM information_schema.views
		WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = 'uid_origin'
		UNION ALL SELECT 'FUNCTION', routine_name, '' FROM information_schema.routines
		WHERE routine_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND routine_name IN ('uid_time', 'uid_worker', 'uid_table')`,
	postgres: `SELECT 'VIEW', relname, '' FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname = ? AND relname = 'uid_origin' AND relkind = 'v'
		UNION ALL SELECT 'FUNCTION', proname, '(bigint)' FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
		WHERE nspname = ? AND proname IN ('uid_time', 'uid_worker', 'uid_table') AND proargtypes::text = '20'`,
	sqlite: `SELECT 'VIEW', name, '' FROM sqlite_schema WHERE type = 'view' AND name = 'uid_origin' AND ? = ?`,
}

func (d *DB) planFunctions(ctx context.Context, _ []workernode.Table) ([]RemovalStep, error) {
	s := RemovalStep{Text: "The view and the functions for SQL.", on: d}
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var kind, name, arguments string
		err := rows.Scan(&kind, &name, &arguments)
		s.SQL = append(s.SQL, "DROP "+kind+" "+d.own(name)+arguments)
		return err
	}, functionsOf[d.SQL.Dialect()], d.schema(), d.schema())
	if err != nil {
		return nil, fmt.Errorf("look for the view and the functions of migrations.CreateFunctions: %w", err)
	}
	if s.SQL == nil {
		return nil, nil
	}
	return []RemovalStep{s}, nil
}

// planTables plans to drop the four tables. WORKER_REGISTRY is the last, because a run after an error reads it.
func (d *DB) planTables(ctx context.Context, _ []workernode.Table) (steps []RemovalStep, err error) {
	var statements []string
	tables := []string{workernode.SessionTable, workernode.SlotTable, workernode.NodeTable, workernode.RegistryTable}
	foreign, err := d.ForeignNodes(ctx)
	switch {
	case err != nil && noTable.MatchString(err.Error()):
	case err != nil:
		return nil, err
	case d.Registry.Shared || len(foreign) > 0:
		tables = slices.Delete(tables, 2, 3)
		statements = append(statements, d.SQL.Translate(`UPDATE "WORKER_NODE" SET "SLOT" = NULL, "HOST_NAME" = '' WHERE "SLOT" IS NOT NULL`))
		steps = append(steps, RemovalStep{Left: true,
			Text: "WORKER_NODE stays, because UidGenerator uses it. Drop it if no Java service uses it. While one " +
				"runs, its inserts into a numbered table can fail with duplicate keys: see docs/removing.md."})
	}
	for _, name := range tables {
		statements = append(statements, d.SQL.Translate(`DROP TABLE IF EXISTS "`+name+`"`))
	}
	return append(steps, RemovalStep{SQL: statements, on: d,
		Text: "The tables of the plugin. Without them no id can be located; keep a dump if somebody may ask."}), nil
}
