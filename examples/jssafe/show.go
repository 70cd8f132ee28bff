package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/dop251/goja"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// A show shows one thing after the other.
type show struct {
	ctx context.Context
	out io.Writer
	js  *goja.Runtime

	db  *gorm.DB
	ids *uidplugin.Plugin
}

func (s *show) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// eval returns the value of a JavaScript expression, in which the variable text is set.
func (s *show) eval(expression, text string) (string, error) {
	if err := s.js.Set("text", text); err != nil {
		return "", err
	}
	v, err := s.js.RunString(expression)
	if err != nil {
		return "", fmt.Errorf("%s: %w", expression, err)
	}
	return v.String(), nil
}

// through sends a value through JSON into JavaScript, and the JavaScript value through JSON back. It returns both
// texts.
func (s *show) through(sent, received any) (there, back string, err error) {
	text, err := json.Marshal(sent)
	if err != nil {
		return "", "", err
	}
	if back, err = s.eval("JSON.stringify(JSON.parse(text))", string(text)); err != nil {
		return "", "", err
	}
	return string(text), back, json.Unmarshal([]byte(back), received)
}

// orders creates enough rows for one whose id is rounded to that of another.
func (s *show) orders() ([]Order, error) {
	orders := make([]Order, 1500)
	for i := range orders {
		orders[i].Total = i
	}
	return orders, s.db.CreateInBatches(orders, 500).Error
}

func (s *show) number() error {
	s.printf("1. A number of 63 bits loses its last digits\n\n")
	orders, err := s.orders()
	if err != nil {
		return err
	}
	var received []Order
	if _, _, err := s.through(orders, &received); err != nil {
		return err
	}
	own := map[int64]Order{}
	for _, o := range orders {
		own[o.ID] = o
	}
	lost, wrong := 0, -1
	for i, o := range received {
		if o.ID == orders[i].ID {
			continue
		}
		lost++
		if _, ok := own[o.ID]; ok && wrong < 0 {
			wrong = i
		}
	}
	s.printf("  %d of %d ids came back as another number\n", lost, len(orders))
	if wrong < 0 {
		return nil
	}
	if err := s.one(orders[wrong], &Order{}); err != nil {
		return err
	}
	// No error reports it.
	found, err := s.ids.Find(s.ctx, uidplugin.ID(received[wrong].ID))
	if err != nil {
		return err
	}
	s.printf("  Find: the order with the total %d, which is another one\n", found.(*Order).Total)
	return nil
}

// one shows the way of one row.
func (s *show) one(sent, received any) error {
	there, back, err := s.through(sent, received)
	s.printf("  Go sends:       %s\n  JavaScript has: %s\n", there, back)
	return err
}

func (s *show) text() error {
	s.printf("\n2. uidplugin.ID is a string in JSON, and survives\n\n")
	invoice, received := Invoice{Total: 42}, Invoice{}
	if err := s.db.Create(&invoice).Error; err != nil {
		return err
	}
	if err := s.one(&invoice, &received); err != nil {
		return err
	}
	found, err := s.ids.Find(s.ctx, uidplugin.ID(received.ID.Int64()))
	if err != nil {
		return err
	}
	s.printf("  Find: the invoice with the total %d\n", found.(*Invoice).Total)
	return nil
}

// parts takes ids apart in JavaScript. It divides, because the operators >> and & know only 32 bits.
const parts = `JSON.stringify(JSON.parse(text).map(o => ({
	Tick:     Math.floor(o.id / 2**16),
	WorkerID: Math.floor(o.id / 2**3) % 2**13,
	Sequence: o.id % 2**3,
})))`

func (s *show) safe() error {
	layout := s.ids.Layout()
	s.printf("\n3. A number of 53 bits survives, and can be computed with: %v\n\n", layout)
	orders, err := s.orders()
	if err != nil {
		return err
	}
	var received []Order
	text, _, err := s.through(orders, &received)
	if err != nil {
		return err
	}
	made, err := s.eval(parts, text)
	if err != nil {
		return err
	}
	var taken []struct{ Tick, WorkerID, Sequence int64 }
	if err := json.Unmarshal([]byte(made), &taken); err != nil {
		return err
	}
	lost, alike := 0, 0
	for i, o := range orders {
		p, err := s.ids.Decode(uidplugin.ID(o.ID))
		if err != nil {
			return err
		}
		if received[i] != o {
			lost++
		}
		if t := taken[i]; layout.TimeOf(t.Tick).Equal(p.Time) && t.WorkerID == p.WorkerID && t.Sequence == p.Sequence {
			alike++
		}
	}
	s.printf("  %d of %d ids came back as another number\n", lost, len(orders))
	s.printf("  %d of them JavaScript takes apart as Go does\n", alike)
	last := len(orders) - 1
	if err := s.one(orders[last], &Order{}); err != nil {
		return err
	}
	l, err := s.ids.Locate(s.ctx, uidplugin.ID(received[last].ID))
	if err != nil {
		return err
	}
	found, err := s.ids.Find(s.ctx, uidplugin.ID(received[last].ID))
	if err != nil {
		return err
	}
	s.printf("  Locate: table %s, worker id %d, sequence %d\n", l.Table, l.WorkerID, l.Sequence)
	s.printf("  Find: the order with the total %d\n", found.(*Order).Total)
	return nil
}

func (s *show) layouts() error {
	s.printf("\n4. Layout.JSSafe tells which layouts have such numbers\n\n")
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  LAYOUT\tLARGEST ID\tIN JAVASCRIPT\tJSSAFE\n")
	for _, l := range []struct {
		name string
		generator.Layout
	}{
		{"DefaultLayout", generator.DefaultLayout()},
		{"SnowflakeLayout", generator.SnowflakeLayout()},
		{"JSSafeLayout", generator.JSSafeLayout()},
		{"JSSafeTablesLayout", generator.JSSafeTablesLayout()},
	} {
		largest := strconv.FormatInt(l.MaxID(), 10)
		seen, err := s.eval("JSON.parse(text)", largest)
		if err != nil {
			return err
		}
		safe, err := s.eval("Number.isSafeInteger(JSON.parse(text))", largest)
		if err != nil {
			return err
		}
		if safe != strconv.FormatBool(l.JSSafe()) {
			return fmt.Errorf("%s: JavaScript says that %s is safe is %s", l.name, largest, safe)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%t\n", l.name, largest, seen, l.JSSafe())
	}
	return w.Flush()
}
