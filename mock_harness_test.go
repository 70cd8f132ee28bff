package uidplugin_test

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
	"github.com/uidplugin/uidplugin/internal/workernode"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// A step is one thing that the database must be asked for, and its answer.
type step struct {
	do   string         // "query" (the default), "exec", "begin", "commit" or "rollback"
	sql  string         // in full
	args []driver.Value // all of them
	rows *sqlmock.Rows  // of a query; nil is none
	n    int64          // rows that an exec changes
	err  error          // the answer instead of all that
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
				e.WillReturnResult(sqlmock.NewResult(0, s.n))
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

// dialects are the mocked dialects, with the quotes and placeholders of their statements.
var dialects = []dialect{
	{"mysql", testkit.OnMySQL, func(s string) string { return strings.ReplaceAll(inSchema("shop", s), `"`, "`") }},
	{"postgres", testkit.OnPostgres, func(s string) string { return numbered(inSchema("public", s)) }},
}

// ownTable matches the tables of the plugin in statements.
var ownTable = regexp.MustCompile(`"WORKER_[A-Z]+"`)

// inSchema puts the plugin's tables into a schema.
func inSchema(schema, statement string) string {
	return ownTable.ReplaceAllString(statement, `"`+schema+`".$0`)
}

// A dialect is one of a mock. Its sql spells a statement with "quoted" names and ? for values.
type dialect struct {
	name string
	dial func(gorm.ConnPool) gorm.Dialector
	sql  func(string) string
}

// onDialects runs a test with a mock of each dialect.
func onDialects(t *testing.T, test func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock)) {
	t.Helper()
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, d.dial)
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

// mockedUse returns a handle on a MySQL mock with a plugin whose tables exist. Its clock stands at noon, so
// its lease manager sends nothing unless a table needs a worker id; see [process].
func mockedUse(t *testing.T, options ...uidplugin.Option) (*gorm.DB, sqlmock.Sqlmock) {
	t.Helper()
	db, mock := testkit.Mock(t, dialects[0].dial)
	expect(mock, migrated(dialects[0].sql)...)
	use(t, db, append(options, onMock...)...)
	return db, mock
}

// onMock are the options of a plugin on a mock.
var onMock = []uidplugin.Option{uidplugin.WithClock(atNoon),
	uidplugin.WithHost(workernode.Host{Application: "shop", Name: "web-1", Port: "8080", Kind: workernode.Container})}

// The statements of the plugin, in the notation of package workernode.
const (
	slotColumns    = `"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED", "REGION"`
	sessionColumns = `"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"`
	nodeColumns    = `"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"`
	nodeFields     = `"ID", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE"`
	allRegistry    = `"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"`

	readVersion  = `SELECT "SCHEMA_VERSION" FROM "WORKER_REGISTRY" WHERE "NAME" = 'default'`
	readRegistry = `SELECT "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`
	probeIndex   = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ?`
	largestNode  = `SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE" WHERE "ID" <= ?`
	lowNodes     = `EXISTS (SELECT 1 FROM "WORKER_NODE" WHERE "ID" BETWEEN 1 AND ?)`
	autoNumbered = `EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = ?` +
		` AND table_name = 'WORKER_NODE' AND column_name = 'ID' AND extra LIKE '%auto_increment%')`
	anySlot = `SELECT (EXISTS (SELECT 1 FROM "WORKER_SLOT") OR EXISTS (SELECT 1 FROM "WORKER_SESSION" "X") OR EXISTS (SELECT 1 FROM (SELECT "SLOT" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL) "X"))` +
		` AND NOT EXISTS (SELECT 1 FROM "WORKER_REGISTRY" WHERE "NAME" = ?)`
	beginRegistry = `INSERT INTO "WORKER_REGISTRY" (` + allRegistry + `) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
	readBack      = `SELECT COALESCE("R"."FLOOR_TICK", 0), COALESCE("R"."ID_SPACE", '') FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = ?` +
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? AND "S"."FENCE" = ?`
	candidates = `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "REGION", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE "APPLICATION" = ?` +
		` AND "LAYOUT" = ? AND "REGION" = ? AND "REUSABLE" = 1 AND ("HOLDER" = '' AND "FENCE" < ? OR "HOLDER" <> '' AND "FENCE" < ? AND "SEEN_TICK" < ?)` +
		` ORDER BY "FENCE", "ID" LIMIT 200`
	insertSlot    = `INSERT INTO "WORKER_SLOT" (` + slotColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP, ?)`
	insertSession = `INSERT INTO "WORKER_SESSION" (` + sessionColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	selectNodes   = `SELECT ` + nodeFields + ` FROM "WORKER_NODE"`
	mayInsert     = `INSERT INTO "WORKER_NODE" (` + nodeColumns + `) SELECT ` + nodeColumns + ` FROM "WORKER_NODE" WHERE 1 = 0`
	renewSlot     = `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "MODIFIED" = CURRENT_TIMESTAMP` +
		` WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`
	selectTrace = `SELECT "N"."ID", "N"."SLOT", "N"."DATABASE_NAME", "N"."TABLE_NAME", "N"."LAYOUT", "N"."START_TICK", "N"."HOST_NAME", "N"."PORT", "N"."TYPE", "N"."LAUNCH_DATE",` +
		` "X"."SLOT", "X"."START_TICK", "X"."BEFORE_TICK", "X"."APPLICATION", "X"."HOST_NAME", "X"."PORT", "X"."TYPE", "X"."LAUNCHED", "X"."HOLDER", "S"."FENCE",` +
		` (SELECT MIN("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?),` +
		` (SELECT MIN("BEFORE_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?)` +
		` FROM "WORKER_NODE" "N" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT" LEFT JOIN "WORKER_SESSION" "X" ON "X"."SLOT" = "S"."ID"` +
		` AND "X"."START_TICK" = (SELECT MAX("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" < ?)` +
		` WHERE "N"."ID" = ?`
)

// The layout and the ticks of mocks: noon, and the fence of a slot that is claimed then.
var (
	fewLayout = generator.DefaultLayout().String()
	noonTick  = generator.DefaultLayout().TickAt(noon)
	leadTicks = int64(10_000)
	noonFence = noonTick + leadTicks
)

// columns returns empty rows with the columns of a list.
func columns(list string) *sqlmock.Rows {
	return sqlmock.NewRows(strings.Split(strings.ReplaceAll(list, `"`, ""), ", "))
}

// located is the query for the schema of the tables. The answer is a server that ignores the case of names.
func located(sql func(string) string) step {
	if sql("?") == "?" {
		return step{sql: `SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names`,
			rows: columns("a, b, c").AddRow("shop", "8.4.0", 1)}
	}
	return step{sql: `SELECT array_to_json(current_schemas(false))::text, COALESCE(current_schema(), ''), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1), COALESCE(nspname, ''),` +
		` COALESCE(relname, ''), COALESCE(pg_catalog.pg_table_is_visible(t.oid), false) FROM (SELECT 1) AS one LEFT JOIN` +
		` (pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace` +
		` JOIN pg_catalog.pg_attribute a ON attrelid = t.oid AND attnum > 0 AND NOT attisdropped)` +
		` ON (lower(relname), lower(attname)) IN (('worker_registry', 'id_space'), ('worker_node', 'launch_date'))` +
		` AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' ORDER BY nspname, relname`, args: []driver.Value{""},
		rows: columns("p, a, b, c, d, e").AddRow(`["public"]`, "public", false, "public", "WORKER_REGISTRY", true)}
}

// probes are the version and the columns of the four tables, which Up and Check compare with their own.
func probes(sql func(string) string) (steps []step) {
	steps = append(append(steps, located(sql)), modes(sql)...)
	steps = append(steps, step{sql: sql(`SELECT * FROM "WORKER_REGISTRY" WHERE 1 = 0`), rows: columns(allRegistry)},
		step{sql: sql(readVersion), rows: columns("SCHEMA_VERSION").AddRow(workernode.SchemaVersion)})
	for _, t := range [][2]string{{"WORKER_NODE", nodeColumns}, {"WORKER_SLOT", slotColumns}, {"WORKER_SESSION", sessionColumns}, {"WORKER_REGISTRY", allRegistry}} {
		steps = append(steps, step{sql: sql(`SELECT * FROM "` + t[0] + `" WHERE 1 = 0`), rows: columns(t[1])})
	}
	return steps
}

// modes is the query for modes of MySQL in which the plugin cannot work.
func modes(sql func(string) string) []step {
	if sql("?") != "?" {
		return nil
	}
	return []step{{sql: `SELECT @@sql_mode`, rows: columns("mode").AddRow("STRICT_TRANS_TABLES")}}
}

// registry is the reading of the registry, which names a layout.
func registry(sql func(string) string, layout string) step {
	rows, values := columns(`"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID"`), []driver.Value{"space", layout, leadTicks, 1, 1, 0, 1, 0, 1}
	args := []driver.Value{"default"}
	if sql("?") == "?" { // MySQL is also asked for AUTO_INCREMENT
		rows, values = columns(`"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID", "EXISTS"`), append(values, 0)
		args = []driver.Value{"shop", "default"}
	}
	return step{sql: reading(sql), args: args, rows: rows.AddRow(values...)}
}

// reading is readRegistry in a dialect.
func reading(sql func(string) string) string {
	if sql("?") == "?" {
		return sql(strings.Replace(readRegistry, ` FROM`, `, `+autoNumbered+` FROM`, 1))
	}
	return sql(readRegistry)
}

// taken is the query whether a process may have a low worker id that the registry has not given out. It has none.
func taken(sql func(string) string) step {
	query, args, rows := `SELECT `+lowNodes, []driver.Value{1024}, columns("taken").AddRow(0)
	if sql("?") == "?" {
		query, args, rows = query+`, `+autoNumbered, append(args, "shop"), columns("taken, shared").AddRow(0, 0)
	}
	return step{sql: sql(query), args: args, rows: rows}
}

// withoutRegistry is the answer of a database that does not have the plugin's tables, to a plugin with WithWorkerID.
func (d dialect) withoutRegistry() []step {
	missing := func(table string) step {
		err := fmt.Errorf(`ERROR: relation "%s" does not exist (SQLSTATE 42P01)`, table)
		if d.name == "mysql" {
			err = fmt.Errorf("Error 1146 (42S02): Table 'shop.%s' doesn't exist", table)
		}
		return step{sql: d.sql(`SELECT * FROM "` + table + `" WHERE 1 = 0`), err: err}
	}
	return []step{absentTables(d.sql), missing("WORKER_REGISTRY"), missing("WORKER_NODE")}
}

// migrated has the statements that db.Use sends if the tables exist.
func migrated(sql func(string) string) []step {
	steps := checked(sql)
	if sql("?") == "?" {
		return steps // MySQL has the index in CREATE TABLE
	}
	return slices.Insert(steps, 4, step{sql: sql(probeIndex), args: []driver.Value{"IDX_WORKER_NODE_SLOT", "public"},
		rows: sqlmock.NewRows([]string{"1"}).AddRow(1)})
}

// checked has the statements of db.Use with WithoutMigration.
func checked(sql func(string) string) []step {
	return append(append(probes(sql), connections(sql)...), registry(sql, fewLayout))
}

// connections has the queries of db.Use for settings of connections.
func connections(sql func(string) string) []step {
	if sql("?") != "?" {
		return []step{settings(sql)}
	}
	return []step{settings(sql), {sql: `SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'`, rows: columns("n").AddRow(1)}}
}

// settings is the query for settings that risk commits. The mock answers that there are none.
func settings(sql func(string) string) step {
	query, columns := `SELECT name, setting FROM pg_settings WHERE name = 'synchronous_commit'`, []string{"name", "setting"}
	if sql("?") == "?" {
		query, columns = `SHOW VARIABLES WHERE VARIABLE_NAME = 'innodb_flush_log_at_trx_commit'`, []string{"Variable_name", "Value"}
	}
	return step{sql: query, rows: sqlmock.NewRows(columns)}
}

// A process is what the lease manager of a plugin with the options onMock asks of a mock. All statements about
// slots and worker ids that mocks expect are here.
type process struct {
	sql     func(string) string
	slot    int64
	version int64 // of its last statement on the slot; 0 before it has the slot
}

// advances is the reservation of n values of a counter, from first on, once no slot of another region is there.
func (p *process) advances(counter string, first, n int64) []step {
	next := `CASE WHEN "` + counter + `" > ? THEN "` + counter + `" ELSE ? END + ?`
	const least = 1 // what both counters were when the registry was read
	args := []driver.Value{least, least, n, "default", "space", 1, 0}
	alone := step{sql: p.sql(`SELECT MIN("REGION") FROM "WORKER_SLOT" WHERE "REGION" <> 0 AND MOD("REGION", 1) = 0`), rows: columns("n").AddRow(nil)}
	if p.sql("?") != "?" { // PostgreSQL
		return []step{alone, {sql: p.sql(`UPDATE "WORKER_REGISTRY" SET "` + counter + `" = ` + next + ` WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ? RETURNING "` + counter + `"`),
			args: args, rows: columns(counter).AddRow(first + n)}}
	}
	return []step{
		alone,
		{do: "exec", sql: p.sql(`UPDATE "WORKER_REGISTRY" SET "` + counter + `" = LAST_INSERT_ID(` + next + `) WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`), args: args, n: 1},
		{sql: `SELECT LAST_INSERT_ID()`, rows: columns("n").AddRow(first + n)},
	}
}

// writesSlot is a renewal, in a transaction that reads back what it has written.
func (p *process) writesSlot(fence int64) []step {
	return []step{
		{do: "exec", sql: p.sql(renewSlot), n: 1,
			args: []driver.Value{noonFence, p.version, sqlmock.AnyArg(), noonTick, p.slot, sqlmock.AnyArg(), p.version - 1, fence}},
		{sql: p.sql(readBack), args: []driver.Value{"default", p.slot, sqlmock.AnyArg(), p.version, noonFence}, rows: columns("FLOOR_TICK, ID_SPACE").AddRow(0, "space")},
	}
}

// starts is the allocation of a slot, as none is free, and the first session.
func (p *process) starts() []step {
	settle := generator.DefaultLayout().TickAt(noon.Add(-11*time.Second)) - 1
	grace := generator.DefaultLayout().TickAt(noon.Add(-time.Minute))
	p.version = 1
	steps := append([]step{{sql: p.sql(candidates), args: []driver.Value{"shop", fewLayout, 0, settle, grace, grace}}, registry(p.sql, fewLayout)}, p.advances("NEXT_SLOT", p.slot, 1)...)
	steps = append(steps, begin, step{do: "exec", sql: p.sql(insertSlot), n: 1,
		args: []driver.Value{p.slot, fewLayout, 1, 0, 0, sqlmock.AnyArg(), noonTick, "shop", "web-1", "8080", 0}})
	return append(append(steps, p.writesSlot(0)...),
		step{do: "exec", sql: p.sql(insertSession), n: 1,
			args: []driver.Value{p.slot, noonTick - 1, 0, "shop", "web-1", "8080", 1, noon.Format("2006-01-02 15:04:05.000"), sqlmock.AnyArg()}},
		step{sql: p.sql(selectNodes + ` WHERE "SLOT" = ? ORDER BY "ID"`), args: []driver.Value{p.slot}},
		commit,
	)
}

// adds is how tables get worker ids from first on, in the order of their names.
func (p *process) adds(first int64, tables ...string) (steps []step) {
	if p.version == 0 {
		steps = append(p.starts(), step{do: "exec", sql: p.sql(mayInsert)})
	}
	n := int64(len(tables))
	steps = append(append(steps, registry(p.sql, fewLayout)), p.advances("NEXT_ID", first, n)...)
	list, args := "", []driver.Value{"web-1", "8080"}
	inserted, workers := nodeRows(), []driver.Value{}
	for i, table := range tables {
		if i == 0 {
			list = fmt.Sprintf(`SELECT %d AS "ID", SUBSTR(?, 1) AS "DATABASE_NAME", SUBSTR(?, 1) AS "TABLE_NAME"`, first)
		} else {
			list += fmt.Sprintf(` UNION ALL SELECT %d, SUBSTR(?, 1), SUBSTR(?, 1)`, first+int64(i))
		}
		args = append(args, "", table)
		workers = append(workers, first+int64(i))
		inserted.AddRow(first+int64(i), p.slot, "", table, fewLayout, noonTick-1, "web-1", "8080", 1, noon)
	}
	p.version++
	insert := fmt.Sprintf(`INSERT INTO "WORKER_NODE" (%s) SELECT "N"."ID", ?, ?, 1, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP,`+
		` "S"."ID", "N"."DATABASE_NAME", "N"."TABLE_NAME", "S"."LAYOUT", %d FROM "WORKER_SLOT" "S" CROSS JOIN (%s) "N"`+
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ?`, nodeColumns, noonTick-1, list)
	return append(append(append(steps, begin), p.writesSlot(noonFence)...),
		step{do: "exec", sql: p.sql(insert), n: n, args: append(args, p.slot, sqlmock.AnyArg(), p.version)},
		p.looksUp(inserted, workers...),
		commit,
	)
}

// looksUp has the query of Find for the rows of worker ids. It returns rows.
func (p *process) looksUp(rows *sqlmock.Rows, workers ...driver.Value) step {
	return step{sql: p.sql(selectNodes + ` WHERE "ID" IN (?` + strings.Repeat(", ?", len(workers)-1) + `)`), args: workers, rows: rows}
}

// nodeRows is the rows of worker ids, none so far.
func nodeRows() *sqlmock.Rows { return columns(nodeFields) }

// node adds the row of a worker id that a process got a minute and a half before noon, with its slot.
func node(rows *sqlmock.Rows, slot, worker int64, table string) *sqlmock.Rows {
	return rows.AddRow(worker, slot, "", table, fewLayout, noonTick-90_001, "web-1", "8080", 1, noon)
}

// traces is how Locate reads of which table and process an id of noon is: a process on web-1 had begun its session a
// minute and a half before. Without a table there is no such worker id.
func (p *process) traces(slot, worker, start int64, table ...string) step {
	rows := columns(strings.ReplaceAll(nodeFields, `"`, "") + `, SLOT, START_TICK, BEFORE_TICK, APPLICATION, HOST_NAME, PORT, TYPE, LAUNCHED, HOLDER, FENCE, NEXT, END`)
	for _, t := range table {
		rows.AddRow(worker, slot, "", t, fewLayout, start, "web-1", "8080", 1, noon,
			slot, noonTick-90_001, 0, "shop", "web-1", "8080", 1, noon.Add(-2*time.Minute), "token", noonFence, nil, nil)
	}
	return step{sql: p.sql(selectTrace), args: []driver.Value{noonTick, noonTick, noonTick, worker}, rows: rows}
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
