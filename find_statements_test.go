package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Worker id and session are read at one moment and each time: what was read before may have been lost with the
// database.
func TestPluginLocate_IsOneStatement(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		expect(mock, migrated(d.sql)...)
		p, asks := use(t, db, onMock...), process{sql: d.sql}
		for sequence := range int64(3) {
			expect(mock, asks.traces(4, 12, noonTick-90_001, "orders"))
			got, err := p.Locate(t.Context(), uidplugin.ID(atFew(t, 12, sequence)))
			must(t, err)
			want := uidplugin.Location{ID: uidplugin.ID(atFew(t, 12, sequence)), Time: noon, WorkerID: 12, Sequence: sequence, Table: "orders",
				Session: workernode.Session{Slot: 4, Application: "shop", Host: "web-1", Port: "8080", Kind: workernode.Container,
					Launched: noon.Add(-2 * time.Minute), From: noon.Add(-90 * time.Second)}}
			if got != want {
				t.Errorf("Locate: %+v, want %+v", got, want)
			}
		}
		for _, unknown := range []step{asks.traces(4, 12, 0), asks.traces(4, 12, 0, ""), asks.traces(4, 12, noonTick, "orders")} {
			expect(mock, unknown)
			if _, err := p.Locate(t.Context(), uidplugin.ID(atFew(t, 12, 0))); !errors.Is(err, uidplugin.ErrUnknownID) {
				t.Errorf("Locate: %v", err)
			}
		}
		if _, err := p.Locate(t.Context(), 17); !errors.Is(err, uidplugin.ErrNotDecodable) { // without a statement
			t.Errorf("Locate: %v", err)
		}
	})
}

func TestPluginLocate_ReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	asks := process{sql: dialects[0].sql}
	db, mock := mockedUse(t)
	broken := asks.traces(4, 12, 0, "orders")
	broken.err = errBroken
	expect(mock, broken)
	l, err := uidplugin.From(db).Locate(t.Context(), uidplugin.ID(atFew(t, 12, 0)))
	if !errors.Is(err, errBroken) || errors.Is(err, uidplugin.ErrUnknownID) || l != (uidplugin.Location{}) {
		t.Fatalf("Locate: %+v, %v", l, err)
	}
	saysAll(t, err.Error(), "uidplugin: locate", "worker id 12")
}

// listInvoices gives db a plugin that lists invoice, whose worker id is 58.
func listInvoices(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) (*uidplugin.Plugin, process) {
	t.Helper()
	asks := process{sql: d.sql, slot: 7}
	expect(mock, migrated(d.sql)...)
	expect(mock, asks.adds(58, "invoices")...)
	return use(t, db, append(onMock, uidplugin.WithModels(&invoice{}))...), asks
}

func TestPluginFind_IsOneQueryInTheTableOfTheID(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		p, asks := listInvoices(t, d, db, mock)
		id := atFew(t, 58, 4)
		expect(mock,
			asks.looksUp(node(nodeRows(), 7, 58, "invoices"), 58),
			step{sql: d.sql(`SELECT * FROM "invoices" WHERE "invoices"."id" = ?`), args: []driver.Value{id},
				rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(id, 99)})
		row, err := p.Find(t.Context(), uidplugin.ID(id))
		must(t, err)
		if got, ok := row.(*invoice); !ok || *got != (invoice{ID: id, Total: 99}) {
			t.Errorf("Find: %#v", row)
		}
	})
}

// The conditions of the handle are kept together, however they are joined. Locks and hints stay in their place.
func TestPluginFind_PutsTheHandleIntoTheQuery(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, dialects[0].dial)
	_, asks := listInvoices(t, dialects[0], db, mock)
	id := atFew(t, 58, 4)
	expect(mock,
		asks.looksUp(node(nodeRows(), 7, 58, "invoices"), 58),
		step{sql: "SELECT `id` FROM `invoices` USE INDEX (a) WHERE (total > ? OR total < ?) AND `invoices`.`id` = ? FOR UPDATE", args: []driver.Value{5, 2, id},
			rows: sqlmock.NewRows([]string{"id"}).AddRow(id)})
	handle := db.Select("id").Where("total > ?", 5).Or("total < ?", 2).Clauses(clause.Locking{Strength: "UPDATE"}, indexHint{})
	if row, err := uidplugin.From(handle).Find(t.Context(), uidplugin.ID(id)); err != nil || *row.(*invoice) != (invoice{ID: id}) {
		t.Errorf("Find: %v, %v", row, err)
	}
}

// indexHint is the clause that the package gorm.io/hints adds to a statement.
type indexHint struct{}

// ModifyStatement implements [gorm.StatementModifier].
func (indexHint) ModifyStatement(stmt *gorm.Statement) {
	from := stmt.Clauses["FROM"]
	from.AfterExpression = clause.Expr{SQL: "USE INDEX (a)"}
	stmt.Clauses["FROM"] = from
}

// Build implements [clause.Expression].
func (indexHint) Build(clause.Builder) {}

func TestPluginFindAll_IsOneQueryForEachTable(t *testing.T) {
	t.Parallel()

	asks := process{sql: dialects[0].sql, slot: 7}
	db, mock := mockedUse(t)
	expect(mock, asks.adds(58, "articles", "invoices")...)
	p := uidplugin.From(db)
	must(t, p.Register(t.Context(), &invoice{}, &article{}))
	a, b, c, d := atFew(t, 59, 1), atFew(t, 59, 2), atFew(t, 58, 1), atFew(t, 58, 2)
	expect(mock, asks.looksUp(node(node(nodeRows(), 7, 58, "articles"), 7, 59, "invoices"), 58, 59))
	mock.MatchExpectationsInOrder(false)
	expect(mock,
		step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` IN (?,?)", args: []driver.Value{a, b},
			rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(b, 2).AddRow(a, 1)},
		step{sql: "SELECT * FROM `articles` WHERE `articles`.`id` IN (?,?)", args: []driver.Value{c, d},
			rows: sqlmock.NewRows([]string{"id", "name"}).AddRow(c, "nail")},
		// d is not found; the database may have numbered it after an id with the worker id 56
		asks.looksUp(node(nodeRows(), 7, 56, "invoices"), 56),
		step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", args: []driver.Value{d}, rows: sqlmock.NewRows([]string{"id", "total"})})
	rows, err := p.FindAll(t.Context(), []uidplugin.ID{uidplugin.ID(a), uidplugin.ID(c), uidplugin.ID(b), uidplugin.ID(d)})
	must(t, err)
	if len(rows) != 3 || *rows[uidplugin.ID(a)].(*invoice) != (invoice{a, 1}) || *rows[uidplugin.ID(b)].(*invoice) != (invoice{b, 2}) || *rows[uidplugin.ID(c)].(*article) != (article{uidplugin.ID(c), "nail"}) {
		t.Errorf("FindAll: %v", rows)
	}
}

// The conditions for one table failed in the table of the id before, which is often another one: not found became an
// error of SQL, and a transaction of PostgreSQL ended. A text was refused for the prefix of that table.
func TestPluginFind_AsksTheTableOfTheIDBeforeForTheKeyOnly(t *testing.T) {
	t.Parallel()

	testKeys()
	asks := process{sql: dialects[0].sql, slot: 7}
	db, mock := mockedUse(t)
	expect(mock, asks.adds(58, "articles", "invoices", "pass_notes")...)
	must(t, uidplugin.From(db).Register(t.Context(), &invoice{}, &article{}, &passNote{}))
	of, ctx := uidplugin.From(db.Where("name = ?", "nail")), t.Context()
	id := atFew(t, 58, 2) // after an id with the worker id 56
	first := []step{asks.looksUp(node(nodeRows(), 7, 58, "articles"), 58),
		{sql: "SELECT * FROM `articles` WHERE (name = ?) AND `articles`.`id` = ?", args: []driver.Value{"nail", id}}}
	before := asks.looksUp(node(nodeRows(), 7, 56, "invoices"), 56)
	key := step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", args: []driver.Value{id}}

	expect(mock, append(first, before, key)...)
	if _, err := of.Find(ctx, uidplugin.ID(id)); !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("no row: %v", err)
	}
	key.err = errBroken
	first[0], before = asks.looksUp(node(nodeRows(), 7, 58, "articles"), 58), asks.looksUp(node(nodeRows(), 7, 56, "invoices"), 56)
	expect(mock, append(first, before, key)...)
	if _, err := of.Find(ctx, uidplugin.ID(id)); !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("the other table cannot be read: %v", err)
	}
	expect(mock, asks.looksUp(node(nodeRows(), 7, 58, "pass_notes"), 58),
		step{sql: "SELECT * FROM `pass_notes` WHERE `pass_notes`.`id` = ?", args: []driver.Value{id}},
		asks.looksUp(node(nodeRows(), 7, 56, "invoices"), 56))
	if _, err := uidplugin.From(db).FindPublic(ctx, uidplugin.Public[passNote](id).String()); !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("a text: %v", err)
	}
}

func TestPluginFind_ReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, dialects[0].dial)
	p, asks := listInvoices(t, dialects[0], db, mock)
	expect(mock,
		asks.looksUp(node(nodeRows(), 7, 58, "invoices"), 58),
		step{sql: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", args: []driver.Value{atFew(t, 58, 0)}, err: errBroken})
	_, err := p.Find(t.Context(), uidplugin.ID(atFew(t, 58, 0)))
	if !errors.Is(err, errBroken) {
		t.Fatalf("Find: %v", err)
	}
	saysAll(t, err.Error(), "uidplugin: find", "invoices")
}
