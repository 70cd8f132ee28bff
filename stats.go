package uidplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
)

// Stats is the state of a plugin at one moment. In JSON it has the names of its tags; durations and errors are texts.
type Stats struct {
	Layout  generator.Layout `json:"-"`
	Time    time.Time        `json:"time,omitzero"`      // when this was so, by the clock that ids are made with
	Expires time.Time        `json:"expires,omitzero"`   // when the layout ends; the end of 9999 if it is later
	Space   string           `json:"id_space,omitempty"` // ID_SPACE: names the id space; empty with WithWorkerID
	Slot    SlotStats        `json:"slot,omitzero"`      // zero with WithWorkerID
	Tables  []TableStats     `json:"tables"`
}

// SlotStats is the state of the slot that this process holds, and what has happened since its
// start. What it counts never goes back. Plugins with one handle of [WithRegistry] share a slot,
// so each of them returns the same.
type SlotStats struct {
	ID        int64     `json:"id"`             // 0 if it has no slot now
	From      time.Time `json:"from,omitzero"`  // since when this process may stamp ids, in this session
	Until     time.Time `json:"until,omitzero"` // until when, unless the slot is renewed
	WorkerIDs int       `json:"worker_ids"`     // of the slot, spares included
	Spares    int       `json:"spares"`         // worker ids without a table
	Given     int64     `json:"given"`          // largest worker id that is given out, of those that this process knows of

	Renewals    int64 `json:"renewals"`     // acknowledged statements that moved Until
	Failures    int64 `json:"failures"`     // attempts to renew the slot, or to do anything else with it, that failed
	Sessions    int64 `json:"sessions"`     // that were begun
	Reclaimed   int64 `json:"reclaimed"`    // slots of former processes that were reclaimed
	Allocated   int64 `json:"allocated"`    // slots that were inserted
	Lost        int64 `json:"lost"`         // slots that another process has reclaimed
	LostCommits int64 `json:"lost_commits"` // slots given up because the database lost commits

	LastError error     `json:"-"`              // why the last statement failed; nil if it did not
	Since     time.Time `json:"since,omitzero"` // since when all have failed
}

// TableStats is the state of the ids of one table, or of all with WithWorkerID.
type TableStats struct {
	// Table is "*" with WithWorkerID and WithOneWorkerID. For a segment of a column that is no primary key it is
	// table.column.
	Table     string        `json:"table"`
	Generator string        `json:"generator"`            // its name, such as [Cached]
	WorkerIDs []int64       `json:"worker_ids,omitempty"` // in ascending order; several with lanes, none if its ids are not of the layout
	From      time.Time     `json:"from,omitzero"`        // since when this process may stamp ids with the worker ids
	Until     time.Time     `json:"until,omitzero"`       // until when, unless they are renewed
	Lead      time.Duration `json:"-"`                    // how far the next id is ahead of the clock, if the generator has a method Lead

	// Made is how many ids were handed out since the start of the process, or a few more. Those that no row got count,
	// such as ids of a create that failed. Ids that were passed over because the clock moved on do not, nor do those that
	// make the gaps of an AUTO_INCREMENT key. While ids are made it may be some milliseconds old. It is 0 if the generator
	// has no method Made() int64, as one of [WithSource] may. Made and Waits of the plugin's own generators never go back.
	Made int64 `json:"made"`

	// Waits is how many calls of the generator have waited: for the clock, for the lease to be renewed, for a range of a
	// segment, or behind another call. The first create of a table, which waits for a worker id, does not count. It is 0
	// if the generator has no method Waits() int64.
	Waits int64 `json:"waits"`
}

// MarshalJSON writes the layout as the text that WORKER_REGISTRY has.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	if s.Tables == nil {
		s.Tables = []TableStats{} // a list in JSON, too
	}
	layout := ""
	if s.Layout != (generator.Layout{}) {
		layout = s.Layout.String()
	}
	return json.Marshal(struct {
		Layout string `json:"layout,omitempty"`
		plain
	}{layout, plain(s)})
}

// MarshalJSON writes the last error as its text.
func (s SlotStats) MarshalJSON() ([]byte, error) {
	type plain SlotStats
	text := ""
	if s.LastError != nil {
		text = s.LastError.Error()
	}
	return json.Marshal(struct {
		plain
		LastError string `json:"last_error,omitempty"`
	}{plain(s), text})
}

// MarshalJSON writes durations as texts, such as "1.5s".
func (s TableStats) MarshalJSON() ([]byte, error) {
	type plain TableStats
	text := ""
	if s.Lead != 0 {
		text = s.Lead.String()
	}
	return json.Marshal(struct {
		plain
		Lead string `json:"lead,omitempty"`
	}{plain(s), text})
}

// Stats returns the state of the plugin: the tables that have a generator, in alphabetical order. It sends no
// statement. Before db.Use it is zero. After Close it has no slot.
func (p *Plugin) Stats() Stats {
	s, err := p.initialized()
	if err != nil {
		return Stats{}
	}
	loc := s.locator.Load()
	stats := Stats{Layout: s.Layout, Time: loc.time(), Expires: loc.timeOf(s.Layout.MaxTick() + 1)}
	if s.manager != nil {
		stats.Space, stats.Slot = s.manager.Registry().Space, s.slotStats()
	}
	for _, state := range s.supply.States() {
		t := TableStats{Table: state.Tag, Generator: state.Generator, Lead: state.Lead, Made: state.Made, Waits: state.Waits}
		for _, lease := range state.Leases {
			t.WorkerIDs = append(t.WorkerIDs, lease.WorkerID)
		}
		if len(state.Leases) > 0 {
			t.From, t.Until = s.Layout.TimeOf(state.Leases[0].From), s.Layout.TimeOf(state.Leases[0].Until+1)
		}
		stats.Tables = append(stats.Tables, t)
	}
	return stats
}

// slotStats returns the state of the slot.
func (s *shared) slotStats() SlotStats {
	slot := s.manager.Stats()
	stats := SlotStats{
		ID: slot.Slot, WorkerIDs: slot.WorkerIDs, Spares: slot.Spares, Given: slot.Given,
		Renewals: slot.Renewals, Failures: slot.Failures, Sessions: slot.Sessions, Reclaimed: slot.Reclaimed, Allocated: slot.Allocated,
		Lost: slot.Lost, LostCommits: slot.LostCommits, LastError: slot.LastError, Since: slot.Since,
	}
	if slot.Slot != 0 {
		stats.From, stats.Until = s.Layout.TimeOf(slot.From), s.Layout.TimeOf(slot.Until+1)
	}
	return stats
}

// Health returns nil if ids can be made now, and later. Otherwise the error wraps [ErrNotRegistered] or [ErrClosed], or
// says since when, and why,
//
//   - the lease of this process could not be renewed: ids are made until what was granted is used up;
//   - a table has no ids: it got no worker id, or its generator could not be opened;
//   - a segment could not fetch a range: ids are made until those in memory are used up;
//   - a generator of WithSource reports an error by its method Health() error.
//
// It wraps the database's own error. It is nil again when the plugin has recovered. It sends no statement. With
// [WithLookupOnly] it returns nil, also while the database is unreachable: the plugin makes no ids, and sends statements
// only for lookups, which return their errors.
func (p *Plugin) Health() error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	if s.supply.Closed() {
		return ErrClosed
	}
	var errs []error
	if s.manager != nil {
		if slot := s.manager.Stats(); slot.LastError != nil {
			errs = append(errs, fmt.Errorf("uidplugin: the lease of this process could not be renewed since %s: %w", supply.FormatTime(slot.Since), slot.LastError))
		}
	}
	return errors.Join(append(errs, s.supply.Health())...)
}
