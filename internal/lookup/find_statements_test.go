package lookup_test

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Worker id and session are read at one moment and each time: what was read before may have been lost with the
// database.
func TestPluginLocate_IsOneStatement(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Expect(mock, plugintest.Migrated(d.SQL)...)
		p, asks := plugintest.Use(t, db, plugintest.OnMock...), plugintest.Process{SQL: d.SQL}
		for sequence := range int64(3) {
			plugintest.Expect(mock, asks.Traces(4, 12, plugintest.NoonTick-90_001, "orders"))
			got, err := p.Locate(t.Context(), uidplugin.ID(plugintest.At(t, 12, sequence)))
			must(t, err)
			want := uidplugin.Location{ID: uidplugin.ID(plugintest.At(t, 12, sequence)), Parts: generator.Parts{Time: plugintest.Noon, WorkerID: 12, Sequence: sequence}, Table: "orders",
				Session: workernode.Session{Slot: 4, Application: "shop", Host: "web-1", Port: "8080", Kind: workernode.Container,
					Launched: plugintest.Noon.Add(-2 * time.Minute), From: plugintest.Noon.Add(-90 * time.Second)}}
			if got != want {
				t.Errorf("Locate: %+v, want %+v", got, want)
			}
		}
		for _, unknown := range []plugintest.Step{asks.Traces(4, 12, 0), asks.Traces(4, 12, 0, ""), asks.Traces(4, 12, plugintest.NoonTick, "orders")} {
			plugintest.Expect(mock, unknown)
			testkit.IsError(t, plugintest.Second(p.Locate(t.Context(), uidplugin.ID(plugintest.At(t, 12, 0)))), uidplugin.ErrUnknownID)
		}
		testkit.IsError(t, plugintest.Second(p.Locate(t.Context(), 17)), uidplugin.ErrNotDecodable) // without a statement
	})
}

func TestPluginLocate_ReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	asks := plugintest.Process{SQL: plugintest.Dialects[0].SQL}
	db, mock := plugintest.MockedUse(t)
	broken := asks.Traces(4, 12, 0, "orders")
	broken.Err = plugintest.ErrBroken
	plugintest.Expect(mock, broken)
	l, err := uidplugin.From(db).Locate(t.Context(), uidplugin.ID(plugintest.At(t, 12, 0)))
	testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: locate", "worker id 12")
	if errors.Is(err, uidplugin.ErrUnknownID) || l != (uidplugin.Location{}) {
		t.Errorf("Locate: %+v, %v", l, err)
	}
}

// listInvoices gives db a plugin that lists invoice, whose worker id is 58.
func listInvoices(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) (*uidplugin.Plugin, plugintest.Process) {
	t.Helper()
	asks := plugintest.Process{SQL: d.SQL, Slot: 7}
	plugintest.Expect(mock, plugintest.Migrated(d.SQL)...)
	plugintest.Expect(mock, asks.Adds(58, "invoices")...)
	return plugintest.Use(t, db, append(plugintest.OnMock, uidplugin.WithModels(&plugintest.Invoice{}))...), asks
}

func TestPluginFind_IsOneQueryInTheTableOfTheID(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		p, asks := listInvoices(t, d, db, mock)
		id := plugintest.At(t, 58, 4)
		plugintest.Expect(mock,
			asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "invoices"), 58),
			plugintest.Step{SQL: d.SQL(`SELECT * FROM "invoices" WHERE "invoices"."id" = ?`), Args: []driver.Value{id},
				Rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(id, 99)})
		finds(t, p, id, plugintest.Invoice{ID: id, Total: 99})
	})
}

// The conditions of the handle are kept together, however they are joined. Locks and hints stay in their place.
func TestPluginFind_PutsTheHandleIntoTheQuery(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
	_, asks := listInvoices(t, plugintest.Dialects[0], db, mock)
	id := plugintest.At(t, 58, 4)
	plugintest.Expect(mock,
		asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "invoices"), 58),
		plugintest.Step{SQL: "SELECT `id` FROM `invoices` USE INDEX (a) WHERE (total > ? OR total < ?) AND `invoices`.`id` = ? FOR UPDATE", Args: []driver.Value{5, 2, id},
			Rows: sqlmock.NewRows([]string{"id"}).AddRow(id)})
	handle := db.Select("id").Where("total > ?", 5).Or("total < ?", 2).Clauses(clause.Locking{Strength: "UPDATE"}, indexHint{})
	finds(t, uidplugin.From(handle), id, plugintest.Invoice{ID: id})
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

	asks := plugintest.Process{SQL: plugintest.Dialects[0].SQL, Slot: 7}
	db, mock := plugintest.MockedUse(t)
	plugintest.Expect(mock, asks.Adds(58, "articles", "invoices")...)
	p := uidplugin.From(db)
	must(t, p.Register(t.Context(), &plugintest.Invoice{}, &plugintest.Article{}))
	a, b, c, d := plugintest.At(t, 59, 1), plugintest.At(t, 59, 2), plugintest.At(t, 58, 1), plugintest.At(t, 58, 2)
	plugintest.Expect(mock, asks.LooksUp(plugintest.Node(plugintest.Node(plugintest.NodeRows(), 58, "articles"), 59, "invoices"), 58, 59))
	mock.MatchExpectationsInOrder(false)
	plugintest.Expect(mock,
		plugintest.Step{SQL: "SELECT * FROM `invoices` WHERE `invoices`.`id` IN (?,?)", Args: []driver.Value{a, b},
			Rows: sqlmock.NewRows([]string{"id", "total"}).AddRow(b, 2).AddRow(a, 1)},
		plugintest.Step{SQL: "SELECT * FROM `articles` WHERE `articles`.`id` IN (?,?)", Args: []driver.Value{c, d},
			Rows: sqlmock.NewRows([]string{"id", "name"}).AddRow(c, "nail")},
		// d is not found; the database may have numbered it after an id with the worker id 56
		asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 56, "invoices"), 56),
		plugintest.Step{SQL: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", Args: []driver.Value{d}, Rows: sqlmock.NewRows([]string{"id", "total"})})
	rows, err := p.FindAll(t.Context(), []uidplugin.ID{uidplugin.ID(a), uidplugin.ID(c), uidplugin.ID(b), uidplugin.ID(d)})
	must(t, err)
	if len(rows) != 3 || *rows[uidplugin.ID(a)].(*plugintest.Invoice) != (plugintest.Invoice{ID: a, Total: 1}) || *rows[uidplugin.ID(b)].(*plugintest.Invoice) != (plugintest.Invoice{ID: b, Total: 2}) || *rows[uidplugin.ID(c)].(*plugintest.Article) != (plugintest.Article{ID: uidplugin.ID(c), Name: "nail"}) {
		t.Errorf("FindAll: %v", rows)
	}
}

// The id that a number follows is often of another table, which the conditions of the handle do not fit. Formerly they
// failed there, so a missing row became an error of SQL, which ended a transaction of PostgreSQL.
func TestPluginFind_AsksTheTableOfTheIDBeforeForTheKeyOnly(t *testing.T) {
	t.Parallel()

	asks := plugintest.Process{SQL: plugintest.Dialects[0].SQL, Slot: 7}
	db, mock := plugintest.MockedUse(t)
	plugintest.Expect(mock, asks.Adds(58, "articles", "invoices")...)
	must(t, uidplugin.From(db).Register(t.Context(), &plugintest.Invoice{}, &plugintest.Article{}))
	of, ctx := uidplugin.From(db.Where("name = ?", "nail")), t.Context()
	id := plugintest.At(t, 58, 2) // after an id with the worker id 56
	first := []plugintest.Step{asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "articles"), 58),
		{SQL: "SELECT * FROM `articles` WHERE (name = ?) AND `articles`.`id` = ?", Args: []driver.Value{"nail", id}}}
	before := asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 56, "invoices"), 56)
	key := plugintest.Step{SQL: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", Args: []driver.Value{id}}

	plugintest.Expect(mock, append(first, before, key)...)
	testkit.IsError(t, plugintest.Second(of.Find(ctx, uidplugin.ID(id))), gorm.ErrRecordNotFound)
	key.Err = plugintest.ErrBroken
	first[0], before = asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "articles"), 58), asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 56, "invoices"), 56)
	plugintest.Expect(mock, append(first, before, key)...)
	testkit.IsError(t, plugintest.Second(of.Find(ctx, uidplugin.ID(id))), gorm.ErrRecordNotFound)
}

func TestPluginFind_ReportsTheDatabasesError(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
	p, asks := listInvoices(t, plugintest.Dialects[0], db, mock)
	plugintest.Expect(mock,
		asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "invoices"), 58),
		plugintest.Step{SQL: "SELECT * FROM `invoices` WHERE `invoices`.`id` = ?", Args: []driver.Value{plugintest.At(t, 58, 0)}, Err: plugintest.ErrBroken})
	_, err := p.Find(t.Context(), uidplugin.ID(plugintest.At(t, 58, 0)))
	testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: find", "invoices")
}
