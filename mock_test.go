package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A step is one thing that the database must be asked for, and its answer.
type step struct {
	do   string         // "query" (the default), "exec", "begin", "commit" or "rollback"
	sql  string         // in full
	args []driver.Value // all of them
	rows *sqlmock.Rows  // of a query; nil is none
	n    int64          // rows that an exec changes
	id   int64          // LAST_INSERT_ID of an exec
	err  error          // the answer instead of all that
	name string         // what an error at this step must mention
}

// expect makes the mock expect steps in their order, and nothing else.
func expect(mock sqlmock.Sqlmock, steps ...step) {
	for _, s := range steps {
		switch s.do {
		case "begin":
			mock.ExpectBegin().WillReturnError(s.err)
		case "commit":
			mock.ExpectCommit().WillReturnError(s.err)
		case "rollback":
			mock.ExpectRollback().WillReturnError(s.err)
		case "exec":
			e := mock.ExpectExec(s.sql).WithArgs(s.args...)
			if s.err != nil {
				e.WillReturnError(s.err)
			} else {
				e.WillReturnResult(sqlmock.NewResult(s.id, s.n))
			}
		default:
			e := mock.ExpectQuery(s.sql).WithArgs(s.args...)
			if s.rows == nil {
				s.rows = sqlmock.NewRows([]string{"none"})
			}
			if s.err != nil {
				e.WillReturnError(s.err)
			} else {
				e.WillReturnRows(s.rows)
			}
		}
	}
}

var (
	begin    = step{do: "begin"}
	commit   = step{do: "commit"}
	rollback = step{do: "rollback"}
)

// errBroken is how mocked databases fail.
var errBroken = errors.New("the cable is broken")

// dialects are those that are mocked, with the quotes and the numbering of values
// that statements have in them.
var dialects = []struct {
	name string
	dial func(gorm.ConnPool) gorm.Dialector
	sql  func(string) string
}{
	{"mysql", func(pool gorm.ConnPool) gorm.Dialector {
		return mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
	}, func(s string) string { return strings.ReplaceAll(s, `"`, "`") }},
	{"postgres", func(pool gorm.ConnPool) gorm.Dialector {
		return postgres.New(postgres.Config{Conn: pool})
	}, numbered},
}

// numbered replaces each ? by $1, $2 and so on.
func numbered(s string) string {
	parts := strings.Split(s, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// mocked returns a handle on a mock that compares statements in full. At the end
// of the test all that was expected must have come.
func mocked(t *testing.T, dial func(gorm.ConnPool) gorm.Dialector) (*gorm.DB, sqlmock.Sqlmock) {
	t.Helper()
	pool, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	must(t, err)
	db, err := gorm.Open(dial(pool), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		mock.ExpectClose()
		_ = pool.Close()
	})
	return db, mock
}

// mockedUse returns a handle on a MySQL mock, with a plugin whose clock stands at
// noon and whose tables are there: NEXT_ID is next.
func mockedUse(t *testing.T, next int64, options ...uidplugin.Option) (*gorm.DB, sqlmock.Sqlmock) {
	t.Helper()
	db, mock := mocked(t, dialects[0].dial)
	expect(mock, migrated(dialects[0].sql, next)...)
	use(t, db, append(options, uidplugin.WithDisposable(), uidplugin.WithClock(atNoon), onWeb1)...)
	return db, mock
}

// onWeb1 is the host of all worker nodes of mocks.
var onWeb1 = uidplugin.WithHost(workernode.Host{Name: "web-1", Port: "8080", Kind: workernode.Container})

// The statements of the plugin, in the notation of package workernode.
const (
	probeNodes    = `SELECT * FROM "WORKER_NODE" WHERE 1 = 0`
	probeRegistry = `SELECT * FROM "WORKER_REGISTRY" WHERE 1 = 0`
	readRegistry  = `SELECT "LAYOUT", "NEXT_ID", "FLOOR_SECOND" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`
	probeIndex    = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ANY (current_schemas(false))`
	largestNode   = `SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE" WHERE "ID" <= ?`
	beginRegistry = `INSERT INTO "WORKER_REGISTRY" ("NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND") VALUES (?, ?, ?, 0)`
	movedNext     = `CASE WHEN "NEXT_ID" > ? THEN "NEXT_ID" ELSE ? END`
	whereNext     = ` + ? WHERE "NAME" = ? AND "NEXT_ID" <= ?`
	insertNodes   = `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED",` +
		` "TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER") VALUES `
	insertNode  = `(?, ?, ?, ?, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, ?, ?, ?, ?, ?, ?, ?)`
	selectNodes = `SELECT "ID", "TABLE_NAME", "LAYOUT", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER"` +
		` FROM "WORKER_NODE"`
)

func nodeColumns() *sqlmock.Rows {
	return sqlmock.NewRows([]string{"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED",
		"TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER"})
}

func registryColumns() *sqlmock.Rows {
	return sqlmock.NewRows([]string{"NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND"})
}

// registry is the reading of the registry, which answers with the layout and next.
func registry(sql func(string) string, next int64) step {
	rows := sqlmock.NewRows([]string{"LAYOUT", "NEXT_ID", "FLOOR_SECOND"}).AddRow(generator.DefaultLayout().String(), next, 0)
	if sql("?") == "?" { // MySQL is also asked for autocommit and AUTO_INCREMENT
		rows = sqlmock.NewRows([]string{"LAYOUT", "NEXT_ID", "FLOOR_SECOND", "@@autocommit", "EXISTS"}).AddRow(generator.DefaultLayout().String(), next, 0, 1, 0)
	}
	return step{sql: reading(sql), args: []driver.Value{"default"}, name: "registry", rows: rows}
}

// reading is readRegistry in a dialect.
func reading(sql func(string) string) string {
	if sql("?") == "?" {
		return sql(strings.Replace(readRegistry, ` FROM`, `, @@autocommit, EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = DATABASE()`+
			` AND table_name = 'WORKER_NODE' AND column_name = 'ID' AND extra LIKE '%auto_increment%') FROM`, 1))
	}
	return sql(readRegistry)
}

// migrated is what db.Use asks of a database whose tables are there.
func migrated(sql func(string) string, next int64) []step {
	steps := checked(sql, next)
	if sql("?") == "?" {
		return steps // MySQL has the index in CREATE TABLE
	}
	return slices.Insert(steps, 1, step{sql: sql(probeIndex), args: []driver.Value{"IDX_WORKER_NODE_TABLE"},
		rows: sqlmock.NewRows([]string{"1"}).AddRow(1)})
}

// checked is what it asks with WithoutMigration.
func checked(sql func(string) string, next int64) []step {
	return []step{
		{sql: sql(probeNodes), rows: nodeColumns()},
		{sql: sql(probeRegistry), rows: registryColumns()},
		registry(sql, next),
		settings(sql),
	}
}

// settings is the question what the database may lose, which answers that it is
// nothing.
func settings(sql func(string) string) step {
	query, columns := `SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync')`, []string{"name", "setting"}
	if sql("?") == "?" {
		query, columns = `SHOW VARIABLES WHERE VARIABLE_NAME IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin')`, []string{"Variable_name", "Value"}
	}
	return step{sql: query, rows: sqlmock.NewRows(columns)}
}

// reserved is what it takes to get worker ids from first on for tables at noon.
func reserved(sql func(string) string, first int64, tables ...string) []step {
	n := int64(len(tables))
	layout := generator.DefaultLayout()
	var args []driver.Value
	for i, table := range tables {
		args = append(args, first+int64(i), "web-1", "8080", 1, table, layout.String(), 0, layout.TickAt(noon)-1, layout.TickAt(noon)-1, layout.MaxTick(), sqlmock.AnyArg())
	}
	values := strings.Repeat(insertNode+", ", len(tables)-1) + insertNode
	reserve := step{sql: sql(`UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ` + movedNext + whereNext + ` RETURNING "NEXT_ID"`),
		rows: sqlmock.NewRows([]string{"NEXT_ID"}).AddRow(first + n)}
	if sql("?") == "?" {
		reserve = step{do: "exec", sql: sql(`UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = LAST_INSERT_ID(` + movedNext + `)` + whereNext), id: first, n: 1}
	}
	reserve.name, reserve.args = "reserve worker ids", []driver.Value{1, 1, n, "default", layout.MaxWorkerID() - n + 1}
	return []step{
		registry(sql, first),
		reserve,
		{do: "exec", sql: sql(insertNodes + values), args: args, n: n, name: "insert worker nodes"},
	}
}

// creates returns the CREATE statements of a dialect, as the file has them.
func creates(t *testing.T, dialect string) (list []string) {
	t.Helper()
	text, err := migrations.Files.ReadFile(dialect + ".sql")
	must(t, err)
	for s := range strings.SplitSeq(string(text), ";\n") {
		if i := strings.Index(s, "CREATE"); i >= 0 {
			list = append(list, s[i:])
		}
	}
	return list
}
