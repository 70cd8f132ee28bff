package tables_test

import (
	"bufio"
	"bytes"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var makeDumps = flag.String("dumps.make", "", "the release whose dumps TestDumps_Make writes")

// dumps has a folder for each release that changed the tables, with a dump and its ids for each engine. 0.0.0 has those
// of commit 50a12e8.
const dumps = "../../migrations/testdata"

// The tables of each release can be opened, upgraded and used by this one for ever: with them, ids that users have
// stored must resolve as before.
func TestDumps_OfAllReleasesAreUpgraded(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		releases, err := os.ReadDir(dumps)
		testkit.Must(t, err)
		if len(releases) < 2 {
			t.Fatalf("%d folders in %s", len(releases), dumps)
		}
		newest := 0
		for _, release := range releases {
			t.Run(release.Name(), func(t *testing.T) {
				d := d.New(t)
				restored, byHand, fresh := d.Open(t, nil), d.New(t).Open(t, nil), d.New(t).Open(t, nil)
				testkit.Must(t, migrations.Up(t.Context(), fresh))
				file := filepath.Join(dumps, release.Name(), d.Name)
				restore(t, restored, file+".sql")
				restore(t, byHand, file+".sql")
				newest = max(newest, versionOf(t, restored))
				upgradeByHand(t, byHand)
				for _, db := range []*gorm.DB{restored, byHand} {
					p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}))
					locateAll(t, p, file+".ids")
					row := harness.T1{}
					testkit.Must(t, db.AutoMigrate(&row))
					testkit.Must(t, db.Create(&row).Error)
					if l, err := p.Locate(t.Context(), row.ID); err != nil || l.Table != "t1" {
						t.Errorf("a new row is located in %q: %v", l.Table, err)
					}
				}
				for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
					a, b, c := harness.Columns(t, restored, table), harness.Columns(t, byHand, table), harness.Columns(t, fresh, table)
					if !slices.Equal(a, b) || !slices.Equal(a, c) {
						t.Errorf("%s by the plugin:\n%q\nby the statements:\n%q\nnew:\n%q", table, a, b, c)
					}
				}
			})
		}
		if newest != workernode.SchemaVersion {
			t.Errorf("the newest dump has version %d, and the tables have %d: make dumps with TestDumps_Make", newest, workernode.SchemaVersion)
		}
	})
}

// versionOf returns the version of the tables, 0 without the column.
func versionOf(t *testing.T, db *gorm.DB) (version int) {
	t.Helper()
	if db.Migrator().HasColumn("WORKER_REGISTRY", "SCHEMA_VERSION") {
		testkit.Must(t, db.Table("WORKER_REGISTRY").Pluck("SCHEMA_VERSION", &version).Error)
	}
	return version
}

// upgradeByHand runs the statements that a program with WithoutMigration prints, if it prints any.
func upgradeByHand(t *testing.T, db *gorm.DB) {
	t.Helper()
	err := migrations.Check(t.Context(), db)
	if err != nil {
		_, statements, _ := strings.Cut(err.Error(), ":\n")
		execute(t, db, statements+"\n")
	}
	testkit.Must(t, migrations.Check(t.Context(), db))
	if version := versionOf(t, db); version != workernode.SchemaVersion {
		t.Errorf("the tables have version %d", version)
	}
}

func restore(t *testing.T, db *gorm.DB, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	execute(t, db, string(text))
}

// execute runs statements that end with ";" and a newline.
func execute(t *testing.T, db *gorm.DB, text string) {
	t.Helper()
	for statement := range strings.SplitSeq(text, ";\n") {
		if statement = strings.TrimSpace(statement); statement != "" {
			testkit.Must(t, db.Exec(statement).Error)
		}
	}
}

// locateAll locates the ids of a file, each with its table and host.
func locateAll(t *testing.T, p *uidplugin.Plugin, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		var id int64
		var table, host string
		_, err := fmt.Sscan(line, &id, &table, &host)
		testkit.Must(t, err)
		l, err := p.Locate(t.Context(), uidplugin.ID(id))
		if err != nil || l.Table != table || l.Session.Host != host {
			t.Errorf("the id %d of %s and %s is located in %q and %q: %v", id, table, host, l.Table, l.Session.Host, err)
		}
		n++
	}
	if n < 6 {
		t.Errorf("%s has %d ids", file, n)
	}
}

// Makes the dumps of a release that has changed the tables, with ids of processes that have ended, come back, or not
// been closed:
//
//	go test ./integration/tables -run TestDumps_Make -dumps.make 0.2.0
func TestDumps_Make(t *testing.T) {
	t.Parallel()
	if *makeDumps == "" {
		t.Skip("-dumps.make is for releases")
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		folder := filepath.Join(dumps, *makeDumps)
		testkit.Must(t, os.MkdirAll(folder, 0o777))
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
		var ids bytes.Buffer
		for i, host := range []string{"web-1", "web-2", "web-1", "web-3"} {
			db := d.Open(t, nil)
			p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}, &harness.T2{}), uidplugin.WithLead(time.Second),
				uidplugin.WithHost(workernode.Host{Application: "shop", Name: host, Port: "8080", Kind: workernode.Container}))
			for range 2 {
				one, two := harness.T1{}, harness.T2{}
				testkit.Must(t, db.Create(&one).Error)
				testkit.Must(t, db.Create(&two).Error)
				fmt.Fprintf(&ids, "%d t1 %s\n%d t2 %s\n", one.ID, host, two.ID, host)
			}
			if host == "web-1" {
				harness.Close(t, p)
			}
			if i > 0 {
				time.Sleep(3 * time.Second) // so the slot of web-1 can be reclaimed
			}
		}
		testkit.Must(t, os.WriteFile(filepath.Join(folder, d.Name+".ids"), ids.Bytes(), 0o666))
		writeDump(t, db, d, filepath.Join(folder, d.Name+".sql"))
	})
}

func writeDump(t *testing.T, db *gorm.DB, d *testkit.Database, path string) {
	t.Helper()
	file, err := os.Create(path)
	testkit.Must(t, err)
	out := bufio.NewWriter(file)
	if d.Name == "postgres" { // which cannot print its tables
		text, err := migrations.Files.ReadFile(d.SQLFile())
		testkit.Must(t, err)
		fmt.Fprintf(out, "%s\n", text)
	}
	for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
		var creates []string
		switch {
		case d.IsMySQL():
			var name, create string
			testkit.Must(t, db.Raw("SHOW CREATE TABLE "+table).Row().Scan(&name, &create))
			creates = append(creates, create)
		case d.Name == "sqlite":
			testkit.Must(t, db.Raw("SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql <> '' ORDER BY type DESC", table).Scan(&creates).Error)
		}
		for _, create := range creates {
			fmt.Fprintf(out, "%s;\n\n", create)
		}
		rows, err := db.Table(table).Order("1, 2").Rows()
		testkit.Must(t, err)
		writeRows(t, out, db.Statement.Quote(table), rows)
	}
	testkit.Must(t, out.Flush())
	testkit.Must(t, file.Close())
}

func writeRows(t *testing.T, out *bufio.Writer, table string, rows *sql.Rows) {
	t.Helper()
	defer func() { _ = rows.Close() }()
	columns, err := rows.ColumnTypes()
	testkit.Must(t, err)
	values, pointers := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	for rows.Next() {
		testkit.Must(t, rows.Scan(pointers...))
		texts := make([]string, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case nil:
				texts[i] = "NULL"
			case time.Time:
				format := "2006-01-02 15:04:05.000"
				if columns[i].DatabaseTypeName() == "DATE" {
					format = time.DateOnly
				}
				texts[i] = "'" + v.UTC().Format(format) + "'"
			case []byte:
				texts[i] = "'" + string(v) + "'"
			case string:
				texts[i] = "'" + v + "'"
			default:
				texts[i] = fmt.Sprint(v)
			}
		}
		fmt.Fprintf(out, "INSERT INTO %s VALUES (%s);\n", table, strings.Join(texts, ", "))
	}
	testkit.Must(t, rows.Err())
}
