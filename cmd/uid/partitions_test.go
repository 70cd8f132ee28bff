// wing: partitions

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/partition"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// servers are the databases with partitions.
var servers = []string{"mariadb", "mysql", "postgres"}

// The statements, those of --json and those of package migrations are the same, and nothing is left to do after them.
func TestPartitions_PrintsTheStatements(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		ids := shop(t, db, "web-1", "first")
		r := runner{t: t, dsn: dsn(d)}
		arguments := []string{"partitions", "orders", "--every", "month", "--ahead", "3", "--keep", "24"}
		text := r.run(arguments...)
		first, next := "p_first", time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, 2, 0).Format("p2006_01")
		if d.Name == "postgres" {
			first, next = "orders_"+first, "orders_"+next
		}
		text.want(t, exitOK, "-- convert "+first+": all ids before ", "-- create "+next+": ids from ")
		var steps []partition.Step
		var statements []string
		for line := range strings.Lines(r.run(append(arguments, "--json")...).out) {
			var s partition.Step
			must(t, json.Unmarshal([]byte(line), &s))
			steps, statements = append(steps, s), append(statements, s.Statements()...)
		}
		if s := steps[0]; s.Action != partition.Convert || s.Partition != first || s.Below <= int64(ids[0]) || s.From != 0 {
			t.Errorf("the first step is %+v", s)
		}
		if len(steps) != 3 || steps[1].From != steps[0].Below || !steps[1].Begin.Equal(steps[0].End) {
			t.Errorf("the steps are %+v", steps)
		}
		parts, err := migrations.PartitionStatements(t.Context(), db, generator.DefaultLayout(), "orders", "month", 3, 24)
		must(t, err)
		joined := strings.Join(parts, ";\n") + ";\n"
		if !slices.Equal(parts, statements) || strings.ReplaceAll(text.out, "\n\n", "\n") != joined {
			t.Errorf("the command prints:\n%s\nand package migrations returns:\n%s", text.out, joined)
		}
		for _, statement := range parts {
			must(t, db.Exec(statement).Error)
		}
		r.run(arguments...).want(t, exitOK, "-- nothing to do")
		if got := r.run(append(arguments, "--json")...); got.code != exitOK || got.out != "" {
			t.Errorf("with --json: %+v", got)
		}
	}, servers...)
}

func TestPartitions_RefusesBadInput(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		month := func(table string, more ...string) result {
			return r.run(append([]string{"partitions", table, "--every", "month"}, more...)...)
		}
		if d.Name == "sqlite" {
			month("orders").want(t, exitFailed, `tables cannot be partitioned on the dialect "sqlite"`)
			return
		}
		for table, statement := range map[string]string{
			"texts":    "CREATE TABLE texts (id varchar(20) PRIMARY KEY)",
			"ints":     "CREATE TABLE ints (id int PRIMARY KEY)",
			"pairs":    "CREATE TABLE pairs (id bigint, n int, PRIMARY KEY (id, n))",
			"keyless":  "CREATE TABLE keyless (id bigint)",
			"numbered": "CREATE TABLE numbered (id bigint PRIMARY KEY)",
			"future":   "CREATE TABLE future (id bigint PRIMARY KEY)",
			"uniques":  "CREATE TABLE uniques (id bigint PRIMARY KEY, name varchar(20) UNIQUE)",
			"a view":   "CREATE VIEW orders_view AS SELECT 1 AS id",
		} {
			if err := db.Exec(statement).Error; err != nil {
				t.Fatalf("%s: %v", table, err)
			}
		}
		by := "CREATE TABLE made (id bigint, day bigint, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)"
		if d.IsMySQL() {
			by += " (PARTITION a VALUES LESS THAN (5))"
		}
		exec(by)(t, db)
		exec("INSERT INTO numbered VALUES (70000000)")(t, db)
		exec("INSERT INTO future VALUES (4000000000000000000)")(t, db)

		month("order").want(t, exitFailed, "partitions of order: the table does not exist")
		month("texts").want(t, exitFailed, "its key id is ", "but ids are bigint")
		month("ints").want(t, exitFailed, "its key id is int")
		month("pairs").want(t, exitFailed, "its primary key has 2 columns (id, n)")
		month("keyless").want(t, exitFailed, "it has no primary key")
		month("numbered").want(t, exitFailed, "its largest id is 70000000, which is not an id")
		month("future").want(t, exitFailed, "its largest id, 4000000000000000000, has a time after")
		month("made").want(t, exitFailed, "it is partitioned by RANGE (", "day")
		month("uniques").want(t, exitFailed, "unique", "drop them ")
		month("orders_view").want(t, exitFailed, "it is")
		month("orders", "--keep", "0").want(t, exitFailed, "--keep 0 must be at least 1")
		month("orders", "--ahead", "0").want(t, exitFailed, "cannot create 0 partitions ahead")
		r.run("partitions", "orders").want(t, exitFailed, "pass --every month, week or day")
		r.run("partitions", "orders", "--every", "year").want(t, exitFailed, `the period "year" is unknown`)
	})
}

// The command names whatever belongs to the old table and would not be carried over to the new one.
func TestPartitions_NamesWhatPostgreSQLWouldNotConvert(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		for _, statement := range []string{
			"CREATE VIEW recent AS SELECT * FROM orders",
			"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
			"CREATE TRIGGER audit BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing()",
			"CREATE POLICY mine ON orders USING (true)",
			"CREATE RULE quiet AS ON DELETE TO orders DO ALSO SELECT 1",
			"ALTER TABLE orders ADD n bigint GENERATED ALWAYS AS IDENTITY, ADD CONSTRAINT apart UNIQUE (n)",
			"GRANT SELECT (text) ON orders TO PUBLIC",
			"CREATE TABLE child () INHERITS (orders)",
		} {
			exec(statement)(t, db)
		}
		r.run("partitions", "orders", "--every", "week").want(t, exitFailed, "view recent", "trigger audit", "policy mine",
			"rule quiet", "identity of the column n", "index apart", "privileges on the column text", "inheritance by child")
	}, "postgres")
}
