package inspector

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A sessionsPage is one page of sessions, the latest first.
type sessionsPage struct {
	Sessions []session `json:"sessions"`
	Timeline *timeline `json:"-"` // nil without sessions
	Slot     int64     `json:"slot,omitempty"`
	Before   time.Time `json:"before,omitzero"`
	Skipped  bool      `json:"skipped,omitempty"` // so many sessions began in one tick that a page has not room for them
	Next     string    `json:"next,omitempty"`    // relative address of the next page; empty after the last one
}

// A session is a time in which one process held a slot.
type session struct {
	uidplugin.Session
	State string `json:"state,omitempty"` // of the slot, in its latest session
}

// maxSlots bounds the slots that are read to draw how the latest sessions end.
const maxSlots = 500

// sessions reads those that began before a time.
func (h *handler) sessions(ctx context.Context, query url.Values) answer {
	a := answer{template: "sessions", title: "Sessions"}
	slot, problem := number(query, "slot")
	if problem != nil {
		a.problem = problem
		return a
	}
	p := sessionsPage{Slot: slot}
	if text := query.Get("before"); text != "" {
		before, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			a.problem = newProblem(http.StatusBadRequest,
				"In the address, before is not a time such as 2026-11-22T21:30:00Z.", err)
			return a
		}
		p.Before = before.UTC()
	}
	all, err := h.plugin.Sessions(ctx, slot, p.Before, h.pageSize+1)
	if err != nil {
		return h.failed(ctx, a, err)
	}
	shown, before := wholeTicks(all, h.pageSize)
	switch {
	case before.IsZero():
	case before.Equal(p.Before): // from outside of the layout's time
		p.Skipped = true
	default:
		p.Skipped = shown[len(shown)-1].From.Equal(all[len(all)-1].From)
		p.Next = next("sessions", query, "before", iso(before))
	}
	slots, err := h.slotsOf(ctx, shown)
	if err != nil {
		return h.failed(ctx, a, err)
	}
	p.Sessions = describe(shown, slots, p.Before, h.now())
	p.Timeline = draw(p.Sessions, slots, p.Before, h.now())
	a.data = p
	return a
}

// wholeTicks returns the sessions that a page shows, and the time before which those of the next page began; zero if
// there are none. Pages end between ticks: the key of a page is a time, and several sessions may begin in one tick.
func wholeTicks(all []uidplugin.Session, size int) (shown []uidplugin.Session, before time.Time) {
	if len(all) <= size {
		return all, time.Time{}
	}
	end := size
	for end > 0 && all[end-1].From.Equal(all[size].From) {
		end--
	}
	if end == 0 { // more began in one tick than a page has room for
		end = size
	}
	return all[:end], all[end-1].From
}

// slotsOf reads slots from the lowest one of sessions on. It reads no more than maxSlots.
func (h *handler) slotsOf(ctx context.Context, sessions []uidplugin.Session) (map[int64]uidplugin.Slot, error) {
	slots := map[int64]uidplugin.Slot{}
	if len(sessions) == 0 {
		return slots, nil
	}
	lowest, highest := sessions[0].Slot, sessions[0].Slot
	for _, s := range sessions {
		lowest, highest = min(lowest, s.Slot), max(highest, s.Slot)
	}
	limit := maxSlots
	if n := highest - lowest + 1; n > 0 && n < maxSlots {
		limit = int(n)
	}
	rows, err := h.plugin.Slots(ctx, lowest-1, limit)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		slots[r.ID] = r
	}
	return slots, nil
}

// describe adds to sessions when they ended, as far as it is known.
func describe(sessions []uidplugin.Session, slots map[int64]uidplugin.Slot, before, now time.Time) []session {
	described := make([]session, len(sessions))
	later := map[int64]time.Time{} // slot -> start of the session that follows
	for i, s := range sessions {
		described[i].Session = s
		if until, ok := later[s.Slot]; ok {
			described[i].Until = until
		} else if slot, ok := slots[s.Slot]; ok && before.IsZero() {
			described[i].State = slot.State(now)
		}
		later[s.Slot] = s.From
	}
	return described
}

// Pager returns the links to other pages.
func (p sessionsPage) Pager() pager {
	first := ""
	if !p.Before.IsZero() {
		first = "sessions"
		if p.Slot != 0 {
			first += "?slot=" + strconv.FormatInt(p.Slot, 10)
		}
	}
	return pager{first, p.Next}
}
