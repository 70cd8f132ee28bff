package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// node is the row of a worker id that a process on web-1 got at noon.
func node(rows *sqlmock.Rows, worker int64, table string) *sqlmock.Rows {
	l := generator.DefaultLayout()
	return rows.AddRow(worker, table, l.String(), "web-1", "8080", 1, noon, l.TickAt(noon)-1, l.TickAt(noon)-1, l.MaxTick(), "holder")
}

func nodeRows() *sqlmock.Rows {
	return sqlmock.NewRows([]string{"ID", "TABLE_NAME", "LAYOUT", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER"})
}

func TestLocateAsksForAWorkerIDOnce(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, mock := mocked(t, d.dial)
			expect(mock, migrated(d.sql, 58)...)
			p := use(t, db, uidplugin.WithSpares(0), uidplugin.WithClock(atNoon))
			expect(mock, step{sql: d.sql(selectNodes + ` WHERE "ID" IN (?)`), args: []driver.Value{12}, rows: node(nodeRows(), 12, "orders")})
			for sequence := range int64(3) {
				got, err := p.Locate(t.Context(), at(t, 12, sequence))
				must(t, err)
				want := uidplugin.Location{ID: uidplugin.ID(at(t, 12, sequence)), Time: noon, WorkerID: 12, Sequence: sequence,
					Table: "orders", Host: "web-1", Port: "8080", Kind: workernode.Container, Launched: noon}
				if got != want {
					t.Errorf("Locate: %+v, want %+v", got, want)
				}
			}
		})
	}
}

// TestLocateAsksAgainForAnUnknownWorkerID: its row may come any moment.
func TestLocateAsksAgainForAnUnknownWorkerID(t *testing.T) {
	t.Parallel()

	db, mock := mockedUse(t, 58)
	ask := step{sql: dialects[0].sql(selectNodes + ` WHERE "ID" IN (?)`), args: []driver.Value{12}, rows: nodeRows()}
	expect(mock, ask)
	p := uidplugin.From(db)
	if _, err := p.Locate(t.Context(), at(t, 12, 0)); !errors.Is(err, uidplugin.ErrUnknownID) {
		t.Errorf("Locate: %v", err)
	}
	ask.rows = node(nodeRows(), 12, "orders")
	expect(mock, ask)
	if _, err := p.Locate(t.Context(), at(t, 12, 0)); err != nil {
		t.Errorf("Locate: %v", err)
	}
}

func TestLocateReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	db, mock := mockedUse(t, 58)
	expect(mock, step{sql: dialects[0].sql(selectNodes + ` WHERE "ID" IN (?)`), args: []driver.Value{12}, err: errBroken})
	_, err := uidplugin.From(db).Locate(t.Context(), at(t, 12, 0))
	if !errors.Is(err, errBroken) || errors.Is(err, uidplugin.ErrUnknownID) {
		t.Fatalf("Locate: %v", err)
	}
	saysAll(t, err.Error(), "uidplugin: locate", "worker ids")
}

// TestLocateReadsLaunchDatesAsText is what MySQL's driver returns without
// parseTime.
func TestLocateReadsLaunchDatesAsText(t *testing.T) {
	t.Parallel()

	db, mock := mockedUse(t, 58)
	expect(mock, step{sql: dialects[0].sql(selectNodes + ` WHERE "ID" > ? ORDER BY "ID" LIMIT 10`), args: []driver.Value{0},
		rows: nodeRows().AddRow(1, "", "", "java-1", "8080", 2, []byte("2024-02-29"), 0, 0, 0, "")})
	nodes, err := uidplugin.From(db).Nodes(t.Context(), 0, 10)
	must(t, err)
	want := workernode.Node{WorkerID: 1, Host: "java-1", Port: "8080", Kind: workernode.Actual, LaunchDate: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}
	if len(nodes) != 1 || *nodes[0] != want {
		t.Errorf("Nodes: %+v", nodes)
	}
}

func TestFindIsOneQueryInTheTableOfTheID(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, mock := mocked(t, d.dial)
			expect(mock, migrated(d.sql, 58)...)
			expect(mock, reserved(d.sql, 58, "invoices")...)
			p := use(t, db, uidplugin.WithDisposable(), uidplugin.WithClock(atNoon), onWeb1, uidplugin.WithModels(&invoice{}))
			id := at(t, 58, 4)
			expect(mock,
				step{sql: d.sql(selectNodes + ` WHERE "ID" IN (?)`), args: []driver.Value{58}, rows: node(nodeRows(), 58, "invoices")},
				step{sql: d.sql(`SELECT * FROM "invoices" WHERE "invoices"."id" = ?`), args: []driver.Value{id},
					rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(id, 99)})
			row, err := p.Find(t.Context(), id)
			must(t, err)
			if got, ok := row.(*invoice); !ok || *got != (invoice{ID: id, Total: 99}) {
				t.Errorf("Find: %#v", row)
			}
		})
	}
}

func TestFindAllIsOneQueryForEachTable(t *testing.T) {
	t.Parallel()

	sql := dialects[0].sql
	db, mock := mockedUse(t, 58)
	expect(mock, reserved(sql, 58, "invoices", "articles")...)
	p := uidplugin.From(db)
	must(t, p.Register(t.Context(), &invoice{}, &article{}))
	a, b, c, d := at(t, 58, 1), at(t, 58, 2), at(t, 59, 1), at(t, 59, 2)
	expect(mock, step{sql: sql(selectNodes + ` WHERE "ID" IN (?, ?)`), args: []driver.Value{58, 59},
		rows: node(node(nodeRows(), 58, "invoices"), 59, "articles")})
	mock.MatchExpectationsInOrder(false)
	expect(mock,
		step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` IN (?,?)", args: []driver.Value{a, b},
			rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(b, 2).AddRow(a, 1)},
		step{sql: "SELECT * FROM `articles` WHERE `articles`.`id` IN (?,?)", args: []driver.Value{c, d},
			rows: sqlmock.NewRows([]string{"id", "name"}).AddRow(c, "nail")})
	rows, err := p.FindAll(t.Context(), a, c, b, d)
	must(t, err)
	if len(rows) != 3 || *rows[a].(*invoice) != (invoice{a, 1}) || *rows[b].(*invoice) != (invoice{b, 2}) || *rows[c].(*article) != (article{uidplugin.ID(c), "nail"}) {
		t.Errorf("FindAll: %v", rows)
	}
}

func TestFindReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	db, mock := mocked(t, dialects[0].dial)
	expect(mock, migrated(dialects[0].sql, 58)...)
	expect(mock, reserved(dialects[0].sql, 58, "invoices")...)
	p := use(t, db, uidplugin.WithDisposable(), uidplugin.WithClock(atNoon), onWeb1, uidplugin.WithModels(&invoice{}))
	expect(mock,
		step{sql: dialects[0].sql(selectNodes + ` WHERE "ID" IN (?)`), args: []driver.Value{58}, rows: node(nodeRows(), 58, "invoices")},
		step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", args: []driver.Value{at(t, 58, 0)}, err: errBroken})
	_, err := p.Find(t.Context(), at(t, 58, 0))
	if !errors.Is(err, errBroken) {
		t.Fatalf("Find: %v", err)
	}
	saysAll(t, err.Error(), "uidplugin: find", "invoices")
}
