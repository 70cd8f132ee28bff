package inspector

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

type slotsPage struct {
	Slots []slot `json:"slots"`
	Own   int64  `json:"own,omitempty"` // slot of this process
	After int64  `json:"-"`
	Next  string `json:"next,omitempty"` // relative address; empty on the last page
}

// A slot is a row of WORKER_SLOT.
type slot struct {
	ID          int64         `json:"id"`
	Region      int64         `json:"region"` // only processes of this region hold it
	State       string        `json:"state"`
	Ahead       time.Duration `json:"-"`               // from now to Fence; 0 unless live
	AheadText   string        `json:"ahead,omitempty"` // such as "9.8s"
	Fence       time.Time     `json:"fence"`           // no process has stamped a later time
	Seen        time.Time     `json:"seen"`            // clock of the last holder at its last statement
	Application string        `json:"application"`
	Host        string        `json:"host"`
	Port        string        `json:"port"`
	Reusable    bool          `json:"reusable"`
}

type slotList struct {
	Slots []slot
	Own   int64 // slot of this process
	Now   time.Time
}

func (h *handler) slots(ctx context.Context, query url.Values) answer {
	a := answer{template: "slots", title: "Slots"}
	after, problem := number(query, "after")
	if problem != nil {
		a.problem = problem
		return a
	}
	rows, err := h.slotsAbove(ctx, after, h.pageSize+1)
	if err != nil {
		return h.failed(ctx, a, err)
	}
	p := slotsPage{Slots: []slot{}, Own: h.plugin.Stats().Slot.ID, After: after}
	rows, p.Next = firstPage(rows, h.pageSize, "slots", query, slotID)
	now := h.now()
	for _, r := range rows {
		p.Slots = append(p.Slots, slotAt(r, now))
	}
	a.data = p
	return a
}

// slotsAbove reads up to limit slots whose ids are above id. It returns nil with WithWorkerID.
func (h *handler) slotsAbove(ctx context.Context, id int64, limit int) ([]workernode.Slot, error) {
	if h.nodes == nil {
		return nil, nil
	}
	return h.nodes.Slots(ctx, h.layout, id, limit)
}

func slotAt(s workernode.Slot, now time.Time) slot {
	v := slot{
		ID: s.ID, Region: s.Region, State: s.State(now), Fence: s.Fence.UTC(), Seen: s.Seen.UTC(),
		Application: s.Application, Host: s.Host, Port: s.Port, Reusable: s.Reusable,
	}
	if v.State == "live" {
		v.Ahead = s.Fence.Sub(now)
		v.AheadText = v.Ahead.Round(time.Millisecond).String()
	}
	return v
}

func slotID(s workernode.Slot) int64 { return s.ID }

// firstPage returns the first size rows, and the relative address of the next page if there are more rows.
func firstPage[T any](
	rows []T, size int, page string, query url.Values, id func(T) int64,
) (first []T, following string) {
	if len(rows) <= size {
		return rows, ""
	}
	return rows[:size], next(page, query, "after", strconv.FormatInt(id(rows[size-1]), 10))
}

// number parses a number of the query; 0 if it is missing.
func number(query url.Values, name string) (int64, *problem) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, newProblem(http.StatusBadRequest, "In the address, "+name+" is not a number.", err)
	}
	return n, nil
}

// next returns the relative address of a page with one value of the query changed, or removed if it is "". If page
// is empty, the address leads to the present page.
func next(page string, query url.Values, name, value string) string {
	changed := url.Values{}
	for _, keep := range []string{"id", "slot", "after", "before", "span", "format"} {
		if v := query.Get(keep); v != "" && len(v) <= maxText {
			changed.Set(keep, v)
		}
	}
	if changed.Set(name, value); value == "" {
		changed.Del(name)
	}
	if page != "" && len(changed) == 0 {
		return page
	}
	return page + "?" + changed.Encode()
}

// A link to the present page has no address.
type link struct{ Address, Text string }

// Pager returns the links to other pages.
func (p slotsPage) Pager() pager { return pagerAfter("slots", p.After, p.Next) }

// A pager links to other pages of a list. Empty links are not shown.
type pager struct{ First, Next string }

func pagerAfter(page string, after int64, next string) pager {
	p := pager{Next: next}
	if after != 0 {
		p.First = page
	}
	return p
}
