package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// regional is an application that makes orders in a region. It returns their ids.
func regional(t testing.TB, db *gorm.DB, n, of int, texts ...string) []uidplugin.ID {
	t.Helper()
	return shopWith(t, db, []uidplugin.Option{uidplugin.WithRegion(n, of)}, texts...)
}

// regions returns the regions that a command prints as JSON.
func regions(t testing.TB, r result) (list []admin.Region) {
	t.Helper()
	r.want(t, exitOK)
	for line := range strings.Lines(r.out) {
		var one admin.Region
		must(t, json.Unmarshal([]byte(line), &one))
		list = append(list, one)
	}
	return list
}

// The statements that the command prints begin the new regions, in an empty database and in a clone, whose processes
// then make other worker ids than those of the divided registry.
func TestRegionSplit_BeginsRegions(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		r.run("region").want(t, exitOK, "region    0 of 1: the registry is not divided", "worker id 1026, slot 2",
			"left      261118 worker ids")
		r.run("region", "split", "3").want(t, exitFailed, "pass --yes")
		r.run("region", "--json").want(t, exitOK, `{"region":0,"of":1,"id_space":"`,
			`"next_worker_id":1026,"next_slot":2,"worker_ids_left":261118}`)
		r.run("region", "split", "3", "--from", "2", "--yes").want(t, exitFailed, "region 0 of 1, not one of 2")

		list := regions(t, r.run("region", "split", "3", "--yes", "--json"))
		if len(list) != 3 || list[0].Region != 0 || list[0].SQL != nil || list[0].NextID != 1026 || list[0].Left != 87040 {
			t.Fatalf("%+v", list)
		}
		r.run("status").want(t, exitOK, "region      0 of 3", "worker ids  0 of 87040 given out")
		workers := map[int64]int{}
		for i, o := range list[1:] {
			if o.Region != int64(i+1) || o.NextID%3 != o.Region || o.NextSlot%3 != o.Region || o.NextID < 1026 {
				t.Errorf("%+v", o)
			}
			other := d.New(t)
			odb := other.Open(t, nil)
			if i == 0 {
				createTables(t, odb)
			} else { // a clone of the first database
				shop(t, odb, "web-1")
				exec(`UPDATE "WORKER_REGISTRY" SET "ID_SPACE" = '`+list[0].Space+`'`)(t, odb)
			}
			if i == 1 {
				must(t, odb.Exec(o.CopySQL[0]).Error)
			}
			must(t, odb.Exec(o.SQL[0]).Error)
			must(t, odb.Exec(o.CopySQL[0]).Error) // again: it deletes only the row of the first database
			if odb.Exec(o.SQL[0]).Error == nil {
				t.Error("a region was begun twice")
			}
			// Formerly the DELETE was among these statements. Piped into the first database, they made it the new region.
			if db.Exec(o.SQL[0]).Error == nil {
				t.Error("the first database has begun the new region")
			}
			odb = other.Open(t, nil)
			for _, id := range regional(t, odb, i+1, 3, "elsewhere") {
				parts, err := generator.DefaultLayout().Decompose(int64(id))
				must(t, err)
				workers[parts.WorkerID]++
			}
			runner{t: t, dsn: dsn(other)}.run("region").want(t, exitOK, fmt.Sprintf("region    %d of 3", i+1))
		}
		if len(workers) != 2 || workers[1] != 0 {
			t.Errorf("the worker ids are %v", workers)
		}
		if got := regional(t, d.Open(t, nil), 0, 3, "here"); len(got) != 1 {
			t.Error(got)
		}
	})
}

// createTables runs what "uid sql" prints.
func createTables(t *testing.T, db *gorm.DB) {
	t.Helper()
	got := runner{t: t}.run("sql", "--dialect", db.Dialector.Name(), "--only", "tables").want(t, exitOK)
	for statement := range strings.SplitSeq(got.out, ";\n") {
		var lines []string
		for line := range strings.Lines(statement) {
			if !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		if s := strings.TrimSpace(strings.Join(lines, "")); s != "" {
			must(t, db.Exec(s).Error)
		}
	}
}

// A second run changes nothing. It prints only regions that this registry has made: of a region that another registry
// has made, this one does not know which numbers are taken.
func TestRegionSplit_PrintsTheStatementsAgain(t *testing.T) {
	t.Parallel()
	d := testkit.Engine{Name: "sqlite"}.New(t)
	db := d.Open(t, nil)
	regional(t, db, 1, 2, "first")
	r := runner{t: t, dsn: dsn(d)}
	of := func(list []admin.Region) (numbers []int64) {
		for _, one := range list {
			numbers = append(numbers, one.Region)
		}
		return numbers
	}
	for _, tt := range []struct {
		args []string
		want []int64
	}{
		{[]string{"6", "--yes"}, []int64{1, 3, 5}},
		{[]string{"6", "--from", "2"}, []int64{1, 3, 5}},
		{[]string{"6", "--from", "3"}, []int64{1, 4}},
	} {
		list := regions(t, r.run(append([]string{"region", "split", "--json"}, tt.args...)...))
		if got := of(list); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %v", tt.args, got)
		}
	}
	text := r.run("region", "split", "6", "--from", "2", "--dialect", "mariadb")
	text.want(t, exitOK, "-- The registry of this database is now region 1 of 6. Set WithRegion(1, 6)", "docs/regions.md",
		"-- region 3 of 6, from worker id 1029 and slot 3 on\n", "-- region 5 of 6",
		"-- only in a copy: DELETE FROM `WORKER_REGISTRY` WHERE `NAME` = 'default' AND `ID_SPACE` = '",
		"INSERT INTO `WORKER_REGISTRY` (`NAME`, ", "only for a region that does not exist yet")
	for line := range strings.Lines(text.out) {
		if !strings.HasPrefix(line, "--") && line != "\n" && !strings.HasSuffix(line, ";\n") {
			t.Errorf("%q is neither a comment nor a statement", line)
		}
	}
	r.run("region", "split", "6", "--from", "2", "--dialect", "postgres").want(t, exitOK, `-- only in a copy: DELETE FROM "WORKER_REGISTRY"`)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"6"}, "already region 1 of 6; to print"},
		{[]string{"6", "--from", "1"}, "cannot have been one of 1"},
		{[]string{"6", "--from", "6"}, "cannot have been one of 6"},
		{[]string{"6", "--from", "4"}, "cannot have been one of 4"},
		{[]string{"6", "--from", "0"}, "--from 0 must be at least 1"},
		{[]string{"8", "--yes"}, "must be a multiple of 6, and is 8"},
		{[]string{"3", "--yes"}, "must be a multiple of 6, and is 3"},
		{[]string{"1"}, `"1", and must be at least 2`},
		{[]string{"two"}, `"two", and must be at least 2`},
		{[]string{"300000", "--yes"}, "too few are left for 300000 regions"},
		{[]string{"12", "--dialect", "oracle"}, "oracle"},
	} {
		r.run(append([]string{"region", "split"}, tt.args...)...).want(t, exitFailed, tt.want)
	}
	r.run("region").want(t, exitOK, "1 of 6")
	r.run("region", "split").want(t, exitFailed, "accepts 1 arg")
	r.run("region", "splt").want(t, exitFailed, "did you mean split")
}

// UidGenerator would insert worker ids of other regions.
func TestRegionSplit_RefusesATableOfUidGenerator(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		must(t, db.Exec("ALTER TABLE WORKER_NODE MODIFY ID BIGINT NOT NULL AUTO_INCREMENT").Error)
		r.run("region", "split", "2", "--yes").want(t, exitFailed,
			"uid: region not usable: ", "AUTO_INCREMENT", "stop UidGenerator")
		r.run("region").want(t, exitOK, "0 of 1")
	}, "mariadb", "mysql")
}

// Formerly the error about tables of an earlier version was only the database's own.
func TestReadRegistry_NamesTablesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		for _, column := range []string{"FIRST_ID", "STRIDE"} {
			exec(`ALTER TABLE "WORKER_REGISTRY" DROP COLUMN "`+column+`"`)(t, db)
			for _, args := range [][]string{{"region"}, {"region", "split", "2", "--yes"}, {"status"}} {
				r.run(args...).want(t, exitFailed, "of an earlier version", "FIRST_ID", "migrations.Up")
			}
		}
	})
}

// Formerly STRIDE 0 led to a division by zero.
func TestReadRegistry_RefusesAnImpossibleRegion(t *testing.T) {
	t.Parallel()
	_, db, r := sqliteShop(t)
	for _, s := range []string{`"STRIDE" = 0`, `"STRIDE" = 2, "REMAINDER" = 2`, `"REMAINDER" = -1`} {
		exec(`UPDATE "WORKER_REGISTRY" SET `+s)(t, db)
		r.run("status").want(t, exitFailed, "STRIDE in WORKER_REGISTRY is ")
	}
}

// A process that runs meanwhile gets worker ids of its region from then on.
func TestRegionSplit_WhileAProcessRuns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := plugintest.Use(t, db)
		must(t, p.AutoMigrate(&order{}))
		must(t, db.Create(&order{}).Error)
		runner{t: t, dsn: dsn(d)}.run("region", "split", "5", "--yes").want(t, exitOK, "-- region 4 of 5, from worker id 1029 ")
		must(t, db.Create(&order{}).Error)
		must(t, p.AutoMigrate(&ticket{})) // a table without a worker id
		made := ticket{}
		must(t, db.Create(&made).Error)
		parts, err := generator.DefaultLayout().Decompose(made.Number)
		must(t, err)
		if parts.WorkerID != 1030 {
			t.Errorf("worker id %d", parts.WorkerID)
		}
		testkit.MustClose(t, p)
	})
}

// Two operators divide a registry at once, for example while the second one is asked for confirmation. Formerly the
// second one got the statements of regions that give out the numbers of those that the first one had made.
func TestRegionSplit_ByTwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	for _, of := range []int64{2, 4} {
		db := testkit.Engine{Name: "sqlite"}.New(t).Open(t, nil)
		shop(t, db, "web-1", "first")
		var operators []*admin.DB
		for range 2 {
			d, err := admin.Connect(db, time.Minute, time.Now)
			must(t, err)
			must(t, d.ReadRegistry(t.Context()))
			operators = append(operators, d)
		}
		if own, others, err := operators[0].Split(t.Context(), 2, 0); err != nil || own.Of != 2 || len(others) != 1 {
			t.Fatal(own, others, err)
		}
		_, others, err := operators[1].Split(t.Context(), of, 0)
		if others != nil || err == nil || !strings.Contains(err.Error(), "is region 0 of 2 now, and was region 0 of 1 when") {
			t.Errorf("%d: %v, %v", of, others, err)
		}
		r, err := operators[0].Nodes.Registry(t.Context())
		if err != nil || r.Region.Of != 2 {
			t.Error(r, err)
		}
	}
}
