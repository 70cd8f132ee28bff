package inspector

import (
	"context"
	"net/url"
	"time"

	"github.com/uidplugin/uidplugin"
)

// An overview is the state of this process and of the id space.
type overview struct {
	Health  health          `json:"health"`
	Space   space           `json:"space"`
	Process uidplugin.Stats `json:"process"` // as Stats writes it
	Rates   []rate          `json:"rates"`   // since the page was looked at before
	Tables  []table         `json:"-"`       // of Process, with their rates
	Ahead   time.Duration   `json:"-"`       // of the slot's lease
}

// A health is what [uidplugin.Plugin.Health] says.
type health struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// A space is what the layout says of all ids.
type space struct {
	Name      string    `json:"id_space,omitempty"` // empty with WithWorkerID
	Layout    string    `json:"layout"`
	Fields    []field   `json:"fields"`
	Epoch     time.Time `json:"epoch"`
	Tick      string    `json:"tick"`
	Ends      time.Time `json:"ends"`
	Used      float64   `json:"used_percent"` // of the ticks
	TicksUsed int64     `json:"ticks_used"`
	Ticks     int64     `json:"ticks"`
	WorkerIDs int64     `json:"worker_ids"`   // that there is room for, from 1 on
	PerTick   int64     `json:"ids_per_tick"` // of one worker id
}

// space describes the layout, and how much of its time is used.
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

// overview reads the first page. It sends no statement, so it is there while the database is not.
func (h *handler) overview(context.Context, url.Values) answer {
	o := overview{Health: health{OK: true}, Process: h.plugin.Stats(), Space: h.space()}
	if err := h.plugin.Health(); err != nil {
		o.Health = health{Reason: err.Error()}
	}
	o.Tables = h.meter.tables(o.Process)
	o.Rates = ratesOf(o.Tables)
	if o.Process.Slot.ID != 0 {
		o.Ahead = o.Process.Slot.Until.Sub(h.now())
	}
	return answer{template: "overview", title: "Overview", data: o}
}
