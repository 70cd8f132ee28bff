package plugintest

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A Step is one request that the mock expects, and its answer.
type Step struct {
	Do   string         // "query" (the default), "exec", "begin", "commit" or "rollback"
	SQL  string         // in full
	Args []driver.Value // all of them
	Rows *sqlmock.Rows  // of a query; nil means no rows
	N    int64          // rows that an exec changes
	Err  error          // the answer instead of Rows or N
}

// Expect makes the mock expect steps in their order, and nothing else.
func Expect(mock sqlmock.Sqlmock, steps ...Step) {
	for _, s := range steps {
		switch s.Do {
		case "begin":
			mock.ExpectBegin().WillReturnError(s.Err)
		case "commit":
			mock.ExpectCommit().WillReturnError(s.Err)
		case "rollback":
			mock.ExpectRollback().WillReturnError(s.Err)
		case "exec":
			e := mock.ExpectExec(s.SQL).WithArgs(s.Args...)
			if s.Err != nil {
				e.WillReturnError(s.Err)
			} else {
				e.WillReturnResult(sqlmock.NewResult(0, s.N))
			}
		default:
			e := mock.ExpectQuery(s.SQL).WithArgs(s.Args...)
			if s.Rows == nil {
				s.Rows = sqlmock.NewRows([]string{"none"})
			}
			if s.Err != nil {
				e.WillReturnError(s.Err)
			} else {
				e.WillReturnRows(s.Rows)
			}
		}
	}
}

var (
	Begin    = Step{Do: "begin"}
	Commit   = Step{Do: "commit"}
	Rollback = Step{Do: "rollback"}
)

// ErrBroken is the error of mocked databases that fail.
var ErrBroken = errors.New("the cable is broken")

// Dialects are the mocked dialects, with the quotes and placeholders of their statements.
var Dialects = []Dialect{
	{"mysql", testkit.OnMySQL, func(s string) string { return strings.ReplaceAll(inSchema("shop", s), `"`, "`") }},
	{"postgres", testkit.OnPostgres, func(s string) string { return numbered(inSchema("public", s)) }},
}

var ownTable = regexp.MustCompile(`"WORKER_[A-Z]+"`)

// inSchema writes a schema before the plugin's tables in a statement.
func inSchema(schema, statement string) string {
	return ownTable.ReplaceAllString(statement, `"`+schema+`".$0`)
}

// A Dialect is the dialect of a mock. SQL translates a statement with "quoted" names and ? for values into it.
type Dialect struct {
	Name string
	Dial func(gorm.ConnPool) gorm.Dialector
	SQL  func(string) string
}

// OnDialects runs a test with a mock of each dialect.
func OnDialects(t *testing.T, test func(t *testing.T, d Dialect, db *gorm.DB, mock sqlmock.Sqlmock)) {
	t.Helper()
	for _, d := range Dialects {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, d.Dial)
			test(t, d, db, mock)
		})
	}
}

// numbered replaces each ? by $1, $2 and so on.
func numbered(s string) string {
	parts := strings.Split(s, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// MockedUse returns a handle on a MySQL mock with a plugin whose tables exist. Its clock stands still, so the lease
// manager sends nothing until a table needs a worker id; see [Process].
func MockedUse(t *testing.T, options ...uidplugin.Option) (*gorm.DB, sqlmock.Sqlmock) {
	t.Helper()
	db, mock := testkit.Mock(t, Dialects[0].Dial)
	Expect(mock, Migrated(Dialects[0].SQL)...)
	Use(t, db, append(options, OnMock...)...)
	return db, mock
}

// OnMock are the options of a plugin on a mock.
var OnMock = []uidplugin.Option{uidplugin.WithClock(AtNoon),
	uidplugin.WithHost(workernode.Host{Application: "shop", Name: "web-1", Port: "8080", Kind: workernode.Container})}

// The statements of the plugin, in the notation of package workernode.
const (
	slotColumns    = `"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED", "REGION"`
	sessionColumns = `"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"`
	nodeColumns    = `"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"`
	nodeFields     = `"ID", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK", "LAUNCH_DATE"`
	allRegistry    = `"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"`

	readVersion  = `SELECT "SCHEMA_VERSION" FROM "WORKER_REGISTRY" WHERE "NAME" = 'default'`
	readRegistry = `SELECT "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`
	probeIndex   = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ?`
	LargestNode  = `SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE" WHERE "ID" <= ?`
	lowNodes     = `EXISTS (SELECT 1 FROM "WORKER_NODE" WHERE "ID" BETWEEN 1 AND ?)`
	autoNumbered = `EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = ?` +
		` AND table_name = 'WORKER_NODE' AND column_name = 'ID' AND extra LIKE '%auto_increment%')`
	AnySlot = `SELECT (EXISTS (SELECT 1 FROM "WORKER_SLOT") OR EXISTS (SELECT 1 FROM "WORKER_SESSION" "X") OR EXISTS (SELECT 1 FROM (SELECT "SLOT" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL) "X"))` +
		` AND NOT EXISTS (SELECT 1 FROM "WORKER_REGISTRY" WHERE "NAME" = ?)`
	BeginRegistry = `INSERT INTO "WORKER_REGISTRY" (` + allRegistry + `) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
	readBack      = `SELECT COALESCE("R"."FLOOR_TICK", 0), COALESCE("R"."ID_SPACE", '') FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = ?` +
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? AND "S"."FENCE" = ?`
	candidates = `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "REGION", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE "APPLICATION" = ?` +
		` AND "LAYOUT" = ? AND "REGION" = ? AND "REUSABLE" = 1 AND ("HOLDER" = '' AND "FENCE" < ? OR "HOLDER" <> '' AND "FENCE" < ? AND "SEEN_TICK" < ?)` +
		` ORDER BY "FENCE", "ID" LIMIT 200`
	insertSlot    = `INSERT INTO "WORKER_SLOT" (` + slotColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP, ?)`
	insertSession = `INSERT INTO "WORKER_SESSION" (` + sessionColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	SelectNodes   = `SELECT ` + nodeFields + ` FROM "WORKER_NODE"`
	mayInsert     = `INSERT INTO "WORKER_NODE" (` + nodeColumns + `) SELECT ` + nodeColumns + ` FROM "WORKER_NODE" WHERE 1 = 0`
	renewSlot     = `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "MODIFIED" = CURRENT_TIMESTAMP` +
		` WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`
	selectTrace = `SELECT "N"."ID", "N"."SLOT", "N"."DATABASE_NAME", "N"."TABLE_NAME", "N"."LAYOUT", "N"."START_TICK", "N"."LAUNCH_DATE",` +
		` "X"."SLOT", "X"."START_TICK", "X"."BEFORE_TICK", "X"."APPLICATION", "X"."HOST_NAME", "X"."PORT", "X"."TYPE", "X"."LAUNCHED", "X"."HOLDER", "S"."FENCE",` +
		` (SELECT MIN("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?),` +
		` (SELECT MIN("BEFORE_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?)` +
		` FROM "WORKER_NODE" "N" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT" LEFT JOIN "WORKER_SESSION" "X" ON "X"."SLOT" = "S"."ID"` +
		` AND "X"."START_TICK" = (SELECT MAX("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" < ?)` +
		` WHERE "N"."ID" = ?`
)

// The layout and the ticks of mocks: noon, and the fence of a slot that is claimed then.
var (
	FewLayout = generator.DefaultLayout().String()
	NoonTick  = generator.DefaultLayout().TickAt(Noon)
	LeadTicks = int64(10_000)
	noonFence = NoonTick + LeadTicks
)

// Columns returns empty rows with the columns of a list.
func Columns(list string) *sqlmock.Rows {
	return sqlmock.NewRows(strings.Split(strings.ReplaceAll(list, `"`, ""), ", "))
}

// located is the query for the schema of the tables. MySQL answers that it ignores the case of names.
func located(sql func(string) string) Step {
	if sql("?") == "?" {
		return Step{SQL: `SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names`,
			Rows: Columns("a, b, c").AddRow("shop", "8.4.0", 1)}
	}
	return Step{SQL: `SELECT array_to_json(current_schemas(false))::text, COALESCE(current_schema(), ''), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1), COALESCE(nspname, ''),` +
		` COALESCE(relname, ''), COALESCE(pg_catalog.pg_table_is_visible(t.oid), false) FROM (SELECT 1) AS one LEFT JOIN` +
		` (pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace` +
		` JOIN pg_catalog.pg_attribute a ON attrelid = t.oid AND attnum > 0 AND NOT attisdropped)` +
		` ON (lower(relname), lower(attname)) IN (('worker_registry', 'id_space'), ('worker_node', 'launch_date'))` +
		` AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' ORDER BY nspname, relname`, Args: []driver.Value{""},
		Rows: Columns("p, a, b, c, d, e").AddRow(`["public"]`, "public", false, "public", "WORKER_REGISTRY", true)}
}

// Probes has the queries that Up and Check of package migrations share.
func Probes(sql func(string) string) (steps []Step) {
	steps = append(append(steps, located(sql)), Modes(sql)...)
	steps = append(steps, Step{SQL: sql(`SELECT * FROM "WORKER_REGISTRY" WHERE 1 = 0`), Rows: Columns(allRegistry)},
		Step{SQL: sql(readVersion), Rows: Columns("SCHEMA_VERSION").AddRow(workernode.SchemaVersion)})
	for _, t := range [][2]string{{"WORKER_NODE", nodeColumns}, {"WORKER_SLOT", slotColumns}, {"WORKER_SESSION", sessionColumns}, {"WORKER_REGISTRY", allRegistry}} {
		steps = append(steps, Step{SQL: sql(`SELECT * FROM "` + t[0] + `" WHERE 1 = 0`), Rows: Columns(t[1])})
	}
	return steps
}

// Modes is the query for modes of MySQL in which the plugin cannot work.
func Modes(sql func(string) string) []Step {
	if sql("?") != "?" {
		return nil
	}
	return []Step{{SQL: `SELECT @@sql_mode`, Rows: Columns("mode").AddRow("STRICT_TRANS_TABLES")}}
}

// Registry is the query for the registry. The answer has the given layout.
func Registry(sql func(string) string, layout string) Step {
	rows, values := Columns(`"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID"`), []driver.Value{"space", layout, LeadTicks, 1, 1, 0, 1, 0, 1}
	args := []driver.Value{"default"}
	if sql("?") == "?" { // MySQL is also asked for AUTO_INCREMENT
		rows, values = Columns(`"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID", "EXISTS"`), append(values, 0)
		args = []driver.Value{"shop", "default"}
	}
	return Step{SQL: Reading(sql), Args: args, Rows: rows.AddRow(values...)}
}

// Reading is the query for the registry in a dialect.
func Reading(sql func(string) string) string {
	if sql("?") == "?" {
		return sql(strings.Replace(readRegistry, ` FROM`, `, `+autoNumbered+` FROM`, 1))
	}
	return sql(readRegistry)
}

// Taken is the query whether WORKER_NODE has low worker ids, which are for WithWorkerID. The answer is no.
func Taken(sql func(string) string) Step {
	query, args, rows := `SELECT `+lowNodes, []driver.Value{1024}, Columns("taken").AddRow(0)
	if sql("?") == "?" {
		query, args, rows = query+`, `+autoNumbered, append(args, "shop"), Columns("taken, shared").AddRow(0, 0)
	}
	return Step{SQL: sql(query), Args: args, Rows: rows}
}

// WithoutRegistry has the queries of a plugin with WithWorkerID to a database without the plugin's tables.
func (d Dialect) WithoutRegistry() []Step {
	missing := func(table string) Step {
		err := fmt.Errorf(`ERROR: relation "%s" does not exist (SQLSTATE 42P01)`, table)
		if d.Name == "mysql" {
			err = fmt.Errorf("Error 1146 (42S02): Table 'shop.%s' doesn't exist", table)
		}
		return Step{SQL: d.SQL(`SELECT * FROM "` + table + `" WHERE 1 = 0`), Err: err}
	}
	return []Step{AbsentTables(d.SQL), missing("WORKER_REGISTRY"), missing("WORKER_NODE")}
}

// AbsentTables is the query for the schema of tables that do not exist.
func AbsentTables(sql func(string) string) Step {
	s := located(sql)
	if sql("?") != "?" {
		s.Rows = Columns("p, a, b, c, d, e").AddRow(`["public"]`, "public", false, "", "", false)
	}
	return s
}

// Migrated has the statements that db.Use sends if the tables exist.
func Migrated(sql func(string) string) []Step {
	steps := Checked(sql)
	if sql("?") == "?" {
		return steps // MySQL has the index in CREATE TABLE
	}
	return slices.Insert(steps, 4, Step{SQL: sql(probeIndex), Args: []driver.Value{"IDX_WORKER_NODE_SLOT", "public"},
		Rows: sqlmock.NewRows([]string{"1"}).AddRow(1)})
}

// Checked has the statements of db.Use with WithoutMigration.
func Checked(sql func(string) string) []Step {
	return append(append(Probes(sql), Connections(sql)...), Registry(sql, FewLayout))
}

// Connections has the queries of db.Use for settings of connections.
func Connections(sql func(string) string) []Step {
	if sql("?") != "?" {
		return []Step{Settings(sql)}
	}
	return []Step{Settings(sql), {SQL: `SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'`, Rows: Columns("n").AddRow(1)}}
}

// Settings is the query for settings with which a server may lose commits. The mock answers that there are none.
func Settings(sql func(string) string) Step {
	query, columns := `SELECT name, setting FROM pg_settings WHERE name = 'synchronous_commit'`, []string{"name", "setting"}
	if sql("?") == "?" {
		query, columns = `SHOW VARIABLES WHERE VARIABLE_NAME = 'innodb_flush_log_at_trx_commit'`, []string{"Variable_name", "Value"}
	}
	return Step{SQL: query, Rows: sqlmock.NewRows(columns)}
}

// A Process has the statements that the lease manager of a plugin with the options [OnMock] sends.
type Process struct {
	SQL     func(string) string
	Slot    int64
	version int64 // of its last statement on the slot; 0 before it has the slot
}

// advances has a check of the slots' regions, and the statements that take n values of a counter from first on.
func (p *Process) advances(counter string, first, n int64) []Step {
	next := `CASE WHEN "` + counter + `" > ? THEN "` + counter + `" ELSE ? END + ?`
	const least = 1 // the value that Registry answers for both counters
	args := []driver.Value{least, least, n, "default", "space", 1, 0}
	alone := Step{SQL: p.SQL(`SELECT MIN("REGION") FROM "WORKER_SLOT" WHERE "REGION" <> 0 AND MOD("REGION", 1) = 0`), Rows: Columns("n").AddRow(nil)}
	if p.SQL("?") != "?" { // PostgreSQL
		return []Step{alone, {SQL: p.SQL(`UPDATE "WORKER_REGISTRY" SET "` + counter + `" = ` + next + ` WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ? RETURNING "` + counter + `"`),
			Args: args, Rows: Columns(counter).AddRow(first + n)}}
	}
	return []Step{
		alone,
		{Do: "exec", SQL: p.SQL(`UPDATE "WORKER_REGISTRY" SET "` + counter + `" = LAST_INSERT_ID(` + next + `) WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`), Args: args, N: 1},
		{SQL: `SELECT LAST_INSERT_ID()`, Rows: Columns("n").AddRow(first + n)},
	}
}

// writesSlot renews the slot, in a transaction that reads its row back.
func (p *Process) writesSlot(fence int64) []Step {
	return []Step{
		{Do: "exec", SQL: p.SQL(renewSlot), N: 1,
			Args: []driver.Value{noonFence, p.version, sqlmock.AnyArg(), NoonTick, p.Slot, sqlmock.AnyArg(), p.version - 1, fence}},
		{SQL: p.SQL(readBack), Args: []driver.Value{"default", p.Slot, sqlmock.AnyArg(), p.version, noonFence}, Rows: Columns("FLOOR_TICK, ID_SPACE").AddRow(0, "space")},
	}
}

// starts inserts a slot, because none is free, and begins its first session.
func (p *Process) starts() []Step {
	settle := generator.DefaultLayout().TickAt(Noon.Add(-11*time.Second)) - 1
	grace := generator.DefaultLayout().TickAt(Noon.Add(-time.Minute))
	p.version = 1
	steps := append([]Step{{SQL: p.SQL(candidates), Args: []driver.Value{"shop", FewLayout, 0, settle, grace, grace}}, Registry(p.SQL, FewLayout)}, p.advances("NEXT_SLOT", p.Slot, 1)...)
	steps = append(steps, Begin, Step{Do: "exec", SQL: p.SQL(insertSlot), N: 1,
		Args: []driver.Value{p.Slot, FewLayout, 1, 0, 0, sqlmock.AnyArg(), NoonTick, "shop", "web-1", "8080", 0}})
	return append(append(steps, p.writesSlot(0)...),
		Step{Do: "exec", SQL: p.SQL(insertSession), N: 1,
			Args: []driver.Value{p.Slot, NoonTick - 1, 0, "shop", "web-1", "8080", 1, Noon.Format("2006-01-02 15:04:05.000"), sqlmock.AnyArg()}},
		Step{SQL: p.SQL(SelectNodes + ` WHERE "SLOT" = ? ORDER BY "ID"`), Args: []driver.Value{p.Slot}},
		Commit,
	)
}

// Adds has the statements that give worker ids, beginning with first, to tables. Pass the tables sorted by name.
func (p *Process) Adds(first int64, tables ...string) (steps []Step) {
	if p.version == 0 {
		steps = append(p.starts(), Step{Do: "exec", SQL: p.SQL(mayInsert)})
	}
	n := int64(len(tables))
	steps = append(append(steps, Registry(p.SQL, FewLayout)), p.advances("NEXT_ID", first, n)...)
	list, args := "", []driver.Value{"web-1", "8080"}
	inserted, workers := NodeRows(), []driver.Value{}
	for i, table := range tables {
		if i == 0 {
			list = fmt.Sprintf(`SELECT %d AS "ID", SUBSTR(?, 1) AS "DATABASE_NAME", SUBSTR(?, 1) AS "TABLE_NAME"`, first)
		} else {
			list += fmt.Sprintf(` UNION ALL SELECT %d, SUBSTR(?, 1), SUBSTR(?, 1)`, first+int64(i))
		}
		args = append(args, "", table)
		workers = append(workers, first+int64(i))
		inserted.AddRow(first+int64(i), p.Slot, "", table, FewLayout, NoonTick-1, Noon)
	}
	p.version++
	insert := fmt.Sprintf(`INSERT INTO "WORKER_NODE" (%s) SELECT "N"."ID", ?, ?, 1, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP,`+
		` "S"."ID", "N"."DATABASE_NAME", "N"."TABLE_NAME", "S"."LAYOUT", %d FROM "WORKER_SLOT" "S" CROSS JOIN (%s) "N"`+
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ?`, nodeColumns, NoonTick-1, list)
	return append(append(append(steps, Begin), p.writesSlot(noonFence)...),
		Step{Do: "exec", SQL: p.SQL(insert), N: n, Args: append(args, p.Slot, sqlmock.AnyArg(), p.version)},
		p.LooksUp(inserted, workers...),
		Commit,
	)
}

// LooksUp is the query of Find for the rows of worker ids. The parameter rows is the answer.
func (p *Process) LooksUp(rows *sqlmock.Rows, workers ...driver.Value) Step {
	return Step{SQL: p.SQL(SelectNodes + ` WHERE "ID" IN (?` + strings.Repeat(", ?", len(workers)-1) + `)`), Args: workers, Rows: rows}
}

// NodeRows returns the columns for rows of worker ids, without rows.
func NodeRows() *sqlmock.Rows { return Columns(nodeFields) }

// Node adds the row of a worker id that slot 7 got a minute and a half before noon.
func Node(rows *sqlmock.Rows, worker int64, table string) *sqlmock.Rows {
	return rows.AddRow(worker, 7, "", table, FewLayout, NoonTick-90_001, Noon)
}

// Traces is the query of Locate for the table and the process of an id of noon. Without a table it finds nothing.
func (p *Process) Traces(slot, worker, start int64, table ...string) Step {
	rows := Columns(strings.ReplaceAll(nodeFields, `"`, "") + `, SLOT, START_TICK, BEFORE_TICK, APPLICATION, HOST_NAME, PORT, TYPE, LAUNCHED, HOLDER, FENCE, NEXT, END`)
	for _, t := range table {
		rows.AddRow(worker, slot, "", t, FewLayout, start, Noon,
			slot, NoonTick-90_001, 0, "shop", "web-1", "8080", 1, Noon.Add(-2*time.Minute), "token", noonFence, nil, nil)
	}
	return Step{SQL: p.SQL(selectTrace), Args: []driver.Value{NoonTick, NoonTick, NoonTick, worker}, Rows: rows}
}

// Creates returns the CREATE statements in a dialect's file of package migrations.
func Creates(t *testing.T, dialect string) (list []string) {
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
