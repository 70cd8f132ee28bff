package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator/capacity"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A tour prints the steps of the example.
type tour struct {
	out    io.Writer
	long   bool // with all steps
	db     *gorm.DB
	plugin *uidplugin.Plugin

	before   []int64   // largest ids of earlier runs, in the order of models
	customer *Customer // of this run
	last     int64     // id of the last order of this run
}

func (t *tour) show(ctx context.Context) error {
	for _, m := range models {
		var id int64
		if err := t.db.Unscoped().Model(m).Select("COALESCE(MAX(id), 0)").Scan(&id).Error; err != nil {
			return fmt.Errorf("read the largest id of earlier runs: %w", err)
		}
		t.before = append(t.before, id)
	}
	steps := []step{
		{"db.Create sets ids and foreign keys, which are known before the INSERTs", t.create},
		{"Decode: the parts of an id, without the database", t.decode},
		{"Locate: the table and the process of an id", t.locate},
		{"Find: the row of an id, whatever its table", t.find},
		{"Ids keep ascending across restarts", t.restart},
	}
	if t.long {
		steps = append(steps[:len(steps)-1],
			step{"Batches", t.batch},
			step{"Numbers that cannot be resolved", t.nowhere},
			step{"WORKER_NODE and WORKER_SESSION: the worker ids of each process", t.workers},
			step{"Stats: the state of this process", t.stats},
			steps[len(steps)-1])
	}
	for i, step := range steps {
		t.printf("\n%d. %s\n", i+1, step.title)
		if err := step.show(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

// A step of the tour.
type step struct {
	title string
	show  func(context.Context) error
}

func (t *tour) create(context.Context) error {
	t.customer = newCustomer()
	if err := t.db.Create(t.customer).Error; err != nil {
		return err
	}
	t.last = t.customer.Orders[len(t.customer.Orders)-1].ID
	t.printf("customer %d, %s\n", t.customer.ID, t.customer.Name)
	for _, o := range t.customer.Orders {
		t.printf("  order %d, CustomerID %d\n", o.ID, o.CustomerID)
		for _, i := range o.Items {
			t.printf("    item %d, OrderID %d\n      ProductID %d, %s\n", i.ID, i.OrderID, i.ProductID, i.Product.Name)
			for _, c := range i.Product.Categories {
				t.printf("        category %d, %s\n", c.ID, c.Name)
			}
		}
	}
	return nil
}

func (t *tour) batch(context.Context) error {
	orders := make([]Order, 3000)
	for i := range orders {
		orders[i].CustomerID = t.customer.ID
	}
	start := time.Now()
	if err := t.db.CreateInBatches(orders, 500).Error; err != nil {
		return err
	}
	took := time.Since(start)
	t.last = orders[len(orders)-1].ID
	t.printf("db.CreateInBatches wrote %d orders, 500 at a time, in %v just now:\n%.0f rows a second, with all that GORM and the database do.\n",
		len(orders), took.Round(time.Millisecond), float64(len(orders))/took.Seconds())
	t.printf("Their ids go from %d to %d.\n", orders[0].ID, t.last)
	return nil
}

func (t *tour) decode(context.Context) error {
	parts, err := t.plugin.Decode(uidplugin.ID(t.last))
	if err != nil {
		return err
	}
	picture, err := capacity.Picture(t.plugin.Layout(), t.last)
	if err != nil {
		return err
	}
	t.printf("The last order is stamped %s UTC, worker id %d, sequence %d.\n%s", clock(parts.Time), parts.WorkerID, parts.Sequence, picture)
	return nil
}

func (t *tour) locate(ctx context.Context) error {
	order := t.customer.Orders[0]
	for _, id := range []uidplugin.ID{t.customer.ID, uidplugin.ID(order.ID), order.Items[0].ID} {
		origin, err := t.plugin.Locate(ctx, id)
		if err != nil {
			return err
		}
		t.printf("%v\n", origin)
	}
	return nil
}

func (t *tour) find(ctx context.Context) error {
	item := t.customer.Orders[0].Items[0]
	ids := []uidplugin.ID{item.ProductID, uidplugin.ID(t.last), 42}
	found, notFound := t.plugin.FindAll(ctx, ids) // the rows found, and an error for the other ids
	for _, id := range ids {
		t.printf("%d: %T\n", id, found[id])
	}
	if !errors.Is(notFound, uidplugin.ErrNotDecodable) {
		return fmt.Errorf("FindAll returned the error %w", notFound)
	}
	return nil
}

func (t *tour) nowhere(ctx context.Context) error {
	unused, err := t.plugin.NextID(ctx, &Order{})
	if err != nil {
		return err
	}
	l := t.plugin.Layout()
	day := int64(24*time.Hour/l.Tick) << (l.WorkerBits + l.SequenceBits)
	t.printf("Distinguish these errors with errors.Is.\n")
	for _, n := range []struct {
		what  string
		id    int64
		want  error
		means string
	}{
		{"a negative number", -1, uidplugin.ErrNegativeID, "ErrNegativeID: ids are never negative."},
		{"the last order's id a day later", t.last + day, uidplugin.ErrFutureID, "ErrFutureID: its time is in the future."},
		{"a day earlier", t.last - day, uidplugin.ErrUnknownID, "ErrUnknownID: its worker id was not given out yet."},
		{"with another worker id", t.last | l.MaxWorkerID()<<l.SequenceBits, uidplugin.ErrUnknownID, "ErrUnknownID: no process has this worker id."},
		{"from NextID, not used yet", int64(unused), gorm.ErrRecordNotFound, "gorm.ErrRecordNotFound: a valid id without a row."},
	} {
		_, err := t.plugin.Find(ctx, uidplugin.ID(n.id))
		if !errors.Is(err, n.want) {
			return fmt.Errorf("Find(%d) returned the error %v", n.id, err)
		}
		t.printf("\n%d, %s\n  %s\n    %v\n", n.id, n.what, n.means, err)
	}
	return nil
}

func (t *tour) workers(ctx context.Context) error {
	slot := t.plugin.Stats().Slot
	t.printf("This process holds slot %d, which owns a worker id for each table:\n\n", slot.ID)
	rows := [][]any{{"ID", "TABLE_NAME"}}
	tables, err := workernode.Open(t.db, 10*time.Second)
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		nodes, err := tables.Nodes(ctx, after, 100)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			after = n.WorkerID
			if n.Slot == slot.ID {
				rows = append(rows, []any{n.WorkerID, n.Table.Name})
			}
		}
		if len(nodes) == 0 {
			break
		}
	}
	if err := t.table(rows...); err != nil {
		return err
	}
	sessions, err := tables.Sessions(ctx, t.plugin.Layout(), 0, time.Time{}, 5) // of all slots
	if err != nil {
		return err
	}
	t.printf("\nEach start of a process begins a session of a slot, and each id leads to the session in which it was made.\nThe last sessions:\n\n")
	rows = [][]any{{"SLOT", "APPLICATION", "HOST_NAME", "PORT", "FROM, UTC"}}
	for _, s := range sessions {
		rows = append(rows, []any{s.Slot, short(s.Application), short(s.Host), short(s.Port), clock(s.From)})
	}
	return t.table(rows...)
}

func (t *tour) stats(context.Context) error {
	s := t.plugin.Stats()
	t.printf("The layout %s makes ids until %s UTC.\n\n", s.Layout, clock(s.Expires))
	rows := [][]any{{"TABLE", "WORKER ID", "GENERATOR", "AHEAD OF THE CLOCK"}}
	for _, s := range s.Tables {
		rows = append(rows, []any{s.Table, s.WorkerIDs[0], s.Generator, s.Lead.Round(time.Millisecond)})
	}
	return t.table(rows...)
}

func (t *tour) restart(ctx context.Context) error {
	// A process that starts while ids are ahead of the clock may begin with smaller ids, which are still unique. We
	// wait so that the next run can print larger ones.
	for _, s := range t.plugin.Stats().Tables {
		time.Sleep(s.Lead)
	}
	if t.before[0] == 0 {
		t.printf("Run the example again to compare: there are no rows of an earlier run.\n")
		return nil
	}
	last, err := t.plugin.Locate(ctx, uidplugin.ID(t.before[1]))
	if err != nil {
		return err
	}
	verdict := "larger"
	if first := t.customer.Orders[0].ID; first <= t.before[1] {
		verdict = "NOT larger: does another process write?"
	}
	t.printf("The last order of the run before is %d.\nIt was made by %s, launched %s UTC.\nThe first of this run is %d: %s.\n",
		t.before[1], short(last.Session.Port), clock(last.Session.Launched), t.customer.Orders[0].ID, verdict)
	return nil
}

func (t *tour) printf(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

func (t *tour) table(rows ...[]any) error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf(strings.Repeat("%v\t", len(row)), row...)))
	}
	return w.Flush()
}

func clock(t time.Time) string { return t.UTC().Format(time.DateTime) }

// short truncates a long name for a table.
func short(name string) string { return fmt.Sprintf("%.19s", name) }
