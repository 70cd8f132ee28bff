package lookup_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestPluginFindAll_ReturnsTheGoodOnesAndAllErrors(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&plugintest.Part{}, &product{}))
	parts := []plugintest.Part{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	products := []product{{Name: "d"}, {Name: "e"}}
	must(t, db.Create(&parts).Error)
	must(t, db.Create(&products).Error)
	must(t, db.Delete(&products[1]).Error)
	p := uidplugin.From(db)
	missing, err := p.NextID(t.Context(), &plugintest.Part{})
	must(t, err)

	unknown := plugintest.At(t, 999, 0)
	ids := []int64{parts[0].ID, -1, int64(products[0].ID), unknown, parts[2].ID, int64(missing), parts[0].ID, int64(products[1].ID), -2, 1<<63 - 1}
	rows, err := p.FindAll(t.Context(), uidplugin.IDs(ids...))
	testkit.IsError(t, err, uidplugin.ErrNegativeID, ": -1", ": -2")
	testkit.IsError(t, err, uidplugin.ErrUnknownID, "999")
	testkit.IsError(t, err, uidplugin.ErrFutureID, "9223372036854775807")
	want := uidplugin.IDs(parts[0].ID, parts[2].ID, int64(products[0].ID))
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, want) {
		t.Errorf("rows of %d, want %d", got, want)
	}

	for _, ids := range [][]uidplugin.ID{nil, {missing}} {
		if rows, err := p.FindAll(t.Context(), ids); len(rows) != 0 || err != nil {
			t.Errorf("FindAll of %v: %v, %v", ids, rows, err)
		}
	}
}

func TestPluginFindAll_ReadsManyRowsInChunks(t *testing.T) {
	t.Parallel()

	db, _ := openParts(t)
	rows := make([]plugintest.Part, 2500)
	must(t, db.CreateInBatches(&rows, 1000).Error)
	var ids []int64
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	tx, s := plugintest.Recorded(db)
	found, err := uidplugin.From(tx).FindAll(t.Context(), uidplugin.IDs(ids...))
	must(t, err)
	if len(found) != len(ids) {
		t.Errorf("%d rows", len(found))
	}
	queries := slices.DeleteFunc(s.Take(), func(sql string) bool { return !strings.Contains(sql, "`parts`") })
	if len(queries) != 3 {
		t.Errorf("%d queries", len(queries))
	}
}

// The errors of ids are in the order of the ids. Those of queries are in the order of tables, and are alone: a caller
// that ignores [uidplugin.ErrNoSuchID] must not ignore them.
func TestPluginFind_TheErrorsOfFindAllAreInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithClock(plugintest.AtNoon))
	p := uidplugin.From(db)
	var rows []int64
	must(t, p.Register(t.Context(), &plugintest.Part{}, &plugintest.Counter{}, &product{})) // which have no tables
	for _, model := range []any{&plugintest.Part{}, &plugintest.Counter{}, &product{}} {
		id, err := p.NextID(t.Context(), model)
		must(t, err)
		rows = append(rows, int64(id))
	}
	for _, worker := range []int64{50, 51, 52} {
		addNode(t, db, elsewhere(worker, fmt.Sprint("elsewhere", worker)))
	}
	future := stampedAt(t, 52, plugintest.Noon.Add(24*time.Hour))
	ids := []int64{
		plugintest.At(t, 999, 0), plugintest.At(t, 50, 0), 1<<63 - 1, rows[0], -2, plugintest.At(t, 51, 7), plugintest.At(t, 50, 3), rows[1], future, plugintest.At(t, 998, 5), -1,
		rows[2], plugintest.At(t, 50, 1), plugintest.At(t, 999, 1), plugintest.At(t, 51, 2),
	}
	each := func(ids []int64) []error {
		_, err := p.FindAll(t.Context(), uidplugin.IDs(ids...))
		return unwrapped(t, err)
	}
	withoutRows := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(rows, id) })
	for range 20 {
		var order []int64
		for _, e := range each(withoutRows) {
			order = append(order, int64(e.(*uidplugin.IDError).ID))
		}
		if order = slices.Compact(order); !slices.Equal(order, withoutRows) { // the one of the future has two
			t.Fatalf("errors of\n%d, want\n%d", order, withoutRows)
		}
		var tables []string
		for _, e := range each(ids) {
			if errors.Is(e, uidplugin.ErrNoSuchID) {
				t.Errorf("%v among the errors of tables", e)
			}
			_, table, _ := strings.Cut(e.Error(), "find in ")
			tables = append(tables, table[:strings.Index(table, ":")])
		}
		if want := []string{"counters", "parts", "products"}; !slices.Equal(tables, want) {
			t.Fatalf("errors of %v, want %v", tables, want)
		}
	}
}

// The ids of a request may be wrong by the thousand: the error names 20, unwraps to all, and takes no quadratic time.
func TestPluginFindAll_ItsErrorListsTheFirstIDs(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))
	plugintest.Migrate(t, db, &plugintest.Part{})
	last := plugintest.At(t, 1, 0) | 1<<62
	ids := make([]uidplugin.ID, 100_000)
	for i := range ids {
		ids[i] = uidplugin.ID(last + int64(i))
	}
	_, err := uidplugin.From(db).FindAll(t.Context(), ids)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "and 99980 more" || !strings.Contains(lines[0], ids[0].String()) || !strings.Contains(lines[19], ids[19].String()) {
		t.Errorf("%d lines: %.300s ... %s", len(lines), err, lines[len(lines)-1])
	}
	if all := unwrapped(t, err); len(all) != len(ids) {
		t.Errorf("it unwraps to %d errors, the last: %v", len(all), all[len(all)-1])
	}
	testkit.IsError(t, err, uidplugin.ErrNoSuchID)
}
