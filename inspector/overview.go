package inspector

import (
	"context"
	"net/url"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow" // wing: follow
)

// An overview is the state of all slots, this process and the id space.
type overview struct {
	Fleet   *fleet          `json:"fleet,omitempty"` // nil without slots, or if the database cannot be read
	Process uidplugin.Stats `json:"process"`
	Rates   []rate          `json:"rates"` // since an earlier page
	Space   space           `json:"space"`
	Tables  []table         `json:"-"` // of Process, with rates
	Ahead   time.Duration   `json:"-"` // how long the lease still lasts

	Followed []follow.TableStats `json:"followed,omitempty"` // in this process; wing: follow
}

// A fleet is the state of the slots of all processes.
type fleet struct {
	Slots  int            `json:"slots"`
	More   bool           `json:"more,omitempty"` // not all slots are counted
	States map[string]int `json:"states"`
	Late   []slot         `json:"late,omitempty"` // overdue or expired, up to maxLate
}

const (
	maxCounted = 1000 // slots read
	maxLate    = 10   // slots listed
)

// fleet reads the first slots, because processes reuse these before they add slots. It returns nil without slots.
func (h *handler) fleet(ctx context.Context) (*fleet, error) {
	rows, err := h.slotsAbove(ctx, 0, maxCounted+1)
	if err != nil || rows == nil {
		return nil, err
	}
	f := &fleet{States: map[string]int{}, More: len(rows) > maxCounted}
	now := h.now()
	for _, r := range rows[:min(len(rows), maxCounted)] {
		s := slotAt(r, now)
		f.Slots++
		f.States[s.State]++
		if stateOf(s.State).Class == late && len(f.Late) < maxLate {
			f.Late = append(f.Late, s)
		}
	}
	return f, nil
}

type space struct {
	Name      string    `json:"id_space,omitempty"` // empty with WithWorkerID
	Layout    string    `json:"layout"`
	Fields    []field   `json:"fields"`
	Epoch     time.Time `json:"epoch"`
	Tick      string    `json:"tick"`
	Ends      time.Time `json:"ends"`
	Used      float64   `json:"used_percent"` // percentage of ticks
	TicksUsed int64     `json:"ticks_used"`
	Ticks     int64     `json:"ticks"`
	WorkerIDs int64     `json:"worker_ids"`   // usable worker ids
	PerTick   int64     `json:"ids_per_tick"` // per worker id
}

func (h *handler) space() space {
	l := h.layout
	stats := h.plugin.Stats()
	s := space{
		Name: stats.Space, Layout: l.String(), Fields: fieldsOf(l), Epoch: l.Epoch.UTC(), Tick: l.Tick.String(),
		Ends: stats.Expires, Ticks: l.MaxTick() + 1, WorkerIDs: l.MaxWorkerID(), PerTick: l.MaxSequence() + 1,
	}
	s.TicksUsed = min(max(l.TickAt(h.now()), 0), s.Ticks)
	s.Used = 100 * float64(s.TicksUsed) / float64(s.Ticks)
	return s
}

// overview reads the data of the start page. It shows this process even if the database cannot be read.
func (h *handler) overview(ctx context.Context, _ url.Values) answer {
	a := answer{template: "overview", title: "Overview"}
	fleet, err := h.fleet(ctx)
	if err != nil {
		a = h.failed(ctx, a, err)
	}
	o := overview{Fleet: fleet, Process: h.plugin.Stats(), Space: h.space()}
	o.Followed = follow.Stats(h.db) // wing: follow
	o.Tables = h.meter.tables(o.Process)
	o.Rates = ratesOf(o.Tables)
	if o.Process.Slot.ID != 0 {
		o.Ahead = o.Process.Slot.Until.Sub(h.now())
	}
	a.data = o
	return a
}
