package inspector

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

// A sessionsPage contains the sessions of one slot, or the latest sessions of several slots.
type sessionsPage struct {
	Slots    []holding     `json:"slots"`
	Timeline *timeline     `json:"-"` // nil without sessions
	Slot     int64         `json:"slot,omitempty"`
	After    int64         `json:"-"`
	Before   time.Time     `json:"before,omitzero"`
	Next     string        `json:"next,omitempty"` // relative address; empty on the last page
	Spans    []link        `json:"-"`              // links to other time spans
	span     time.Duration // shown time; 0 for all
}

// A holding contains the sessions of a slot, the latest first.
type holding struct {
	Slot     int64     `json:"slot"`
	Sessions []session `json:"sessions"`
	Earlier  int       `json:"earlier,omitempty"` // number of older sessions; maxEarlier+1 means more than maxEarlier
	More     string    `json:"next,omitempty"`    // relative address of older sessions
}

type session struct {
	workernode.Session
	State string `json:"state,omitempty"` // of the slot; set only in its latest session
	Same  bool   `json:"same,omitempty"`  // the next older session of the slot is of the same process, which had lost its lease
}

const (
	maxLanes    = 30 // slots per page
	minSessions = 5  // per slot, if there are several slots
	maxEarlier  = 50 // older sessions of a slot that are counted exactly
)

// sessions uses only the primary key of WORKER_SESSION, so a million sessions take no longer than a hundred.
func (h *handler) sessions(ctx context.Context, query url.Values) answer {
	a := answer{template: "sessions", title: "Sessions"}
	p, problem := h.sessionsOf(query)
	if problem != nil {
		a.problem = problem
		return a
	}
	rows, err := h.slotsOf(ctx, &p, query)
	if err != nil {
		return h.failed(ctx, a, err)
	}
	limit := max(h.pageSize/max(len(rows), 1), min(h.pageSize, minSessions))
	now := h.now()
	for _, row := range rows {
		list, err := h.nodes.Sessions(ctx, h.layout, row.ID, p.Before, limit+maxEarlier+1)
		if err != nil {
			return h.failed(ctx, a, err)
		}
		if len(list) > 0 {
			p.Slots = append(p.Slots, holdingOf(row, list, limit, query, now))
		}
	}
	if p.Slot != 0 && len(p.Slots) > 0 {
		p.Next = p.Slots[0].More
	}
	p.Timeline = draw(p.Slots, p.Before, p.span, now)
	a.data = p
	return a
}

func (h *handler) sessionsOf(query url.Values) (p sessionsPage, failed *problem) {
	p.Slots = []holding{}
	for name, n := range map[string]*int64{"slot": &p.Slot, "after": &p.After} {
		if *n, failed = number(query, name); failed != nil {
			return p, failed
		}
	}
	if text := query.Get("before"); text != "" {
		before, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return p, newProblem(http.StatusBadRequest,
				"In the address, before is not a time such as 2026-11-22T21:30:00Z.", err)
		}
		p.Before = before.UTC()
	}
	if text := query.Get("span"); text != "" {
		span, err := time.ParseDuration(text)
		if err != nil || span < 0 {
			return p, newProblem(http.StatusBadRequest, "In the address, span is not a duration such as 24h.", err)
		}
		p.span = span
	}
	for _, span := range []link{{"1h", "1 hour"}, {"24h", "24 hours"}, {"168h", "7 days"}, {"", "all"}} {
		if span.Address != query.Get("span") {
			p.Spans = append(p.Spans, link{next("sessions", query, "span", span.Address), span.Text})
		} else {
			p.Spans = append(p.Spans, link{"", span.Text})
		}
	}
	return p, nil
}

// slotsOf reads the slots of a page, and sets Next. A slot without a row may still have sessions.
func (h *handler) slotsOf(ctx context.Context, p *sessionsPage, query url.Values) ([]workernode.Slot, error) {
	if p.Slot != 0 && h.nodes != nil {
		rows, err := h.slotsAbove(ctx, p.Slot-1, 1)
		if err == nil && (len(rows) == 0 || rows[0].ID != p.Slot) {
			rows = []workernode.Slot{{ID: p.Slot}}
		}
		return rows, err
	}
	size := min(h.pageSize, maxLanes)
	rows, err := h.slotsAbove(ctx, p.After, size+1)
	rows, p.Next = firstPage(rows, size, "sessions", query, slotID)
	return rows, err
}

// holdingOf describes up to limit sessions of a slot.
func holdingOf(row workernode.Slot, list []workernode.Session, limit int, query url.Values, now time.Time) holding {
	v := holding{Slot: row.ID}
	for i, s := range list[:min(len(list), limit)] {
		d := session{Session: s}
		if s.Until.IsZero() {
			d.State = row.State(now)
		}
		if d.State == "free" && row.Seen.Before(s.Last) {
			d.Last = row.Seen // when its process released the slot
		}
		d.Same = i+1 < len(list) && sameProcess(s, list[i+1])
		v.Sessions = append(v.Sessions, d)
	}
	v.Earlier = len(list) - len(v.Sessions)
	if oldest := v.Sessions[len(v.Sessions)-1].From; v.Earlier > 0 && iso(oldest) != query.Get("before") {
		slot := url.Values{"slot": {strconv.FormatInt(row.ID, 10)}}
		for _, keep := range []string{"format", "span"} {
			if text := query.Get(keep); text != "" {
				slot.Set(keep, text)
			}
		}
		v.More = next("sessions", slot, "before", iso(oldest))
	}
	return v
}

func sameProcess(a, b workernode.Session) bool {
	return !a.Pruned() && a.Application == b.Application && a.Host == b.Host && a.Port == b.Port &&
		a.Launched.Equal(b.Launched)
}

// Pager returns the links to other pages.
func (p sessionsPage) Pager() pager {
	if p.Slot != 0 && !p.Before.IsZero() {
		return pager{First: "sessions?slot=" + strconv.FormatInt(p.Slot, 10)}
	}
	return pagerAfter("sessions", p.After, p.Next)
}
