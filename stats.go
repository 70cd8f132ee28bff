package uidplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
)

// Stats is the state of a plugin at one moment. In JSON, durations and errors are texts.
type Stats struct {
	Layout  generator.Layout `json:"-"`
	Time    time.Time        `json:"time,omitzero"`      // by the clock of the generators
	Expires time.Time        `json:"expires,omitzero"`   // end of the layout, or of the year 9999 if that is earlier
	Space   string           `json:"id_space,omitempty"` // ID_SPACE, the name of the id space; empty with WithWorkerID
	Slot    SlotStats        `json:"slot,omitzero"`      // zero with WithWorkerID
	Tables  []TableStats     `json:"tables"`
}

// SlotStats is the state of this process's slot, with counters since its start. Counters never decrease. Plugins with
// one handle of [WithRegistry] share a slot, so they return the same values.
type SlotStats struct {
	ID        int64     `json:"id"`             // 0 without a slot
	From      time.Time `json:"from,omitzero"`  // start of the time that this process may stamp, in this session
	Until     time.Time `json:"until,omitzero"` // end of that time, unless the slot is renewed
	WorkerIDs int       `json:"worker_ids"`     // number of worker ids of the slot
	Given     int64     `json:"given"`          // largest worker id given out, as far as this process knows

	Renewals    int64 `json:"renewals"`     // acknowledged statements that moved Until
	Failures    int64 `json:"failures"`     // failed renewals and other failed statements about the slot
	Sessions    int64 `json:"sessions"`     // sessions begun
	Reclaimed   int64 `json:"reclaimed"`    // slots reclaimed from former processes
	Allocated   int64 `json:"allocated"`    // slots inserted
	Lost        int64 `json:"lost"`         // slots reclaimed by another process
	LostCommits int64 `json:"lost_commits"` // slots given up because the database lost commits

	LastError error     `json:"-"`              // error of the last statement; nil on success
	Since     time.Time `json:"since,omitzero"` // start of the current failures
}

// TableStats is the state of one table's ids, or of all tables with WithWorkerID.
type TableStats struct {
	// Table is "*" with WithWorkerID and WithOneWorkerID. For a segment of a column that is not a primary key it is
	// table.column.
	Table     string        `json:"table"`
	Generator string        `json:"generator"`            // name, such as [Cached]
	WorkerIDs []int64       `json:"worker_ids,omitempty"` // ascending; several with lanes, empty for foreign ids
	From      time.Time     `json:"from,omitzero"`        // start of the time that the worker ids may stamp
	Until     time.Time     `json:"until,omitzero"`       // end of that time, unless renewed
	Lead      time.Duration `json:"-"`                    // how far the next id is ahead of the clock; 0 if unknown

	// Made counts ids handed out since the process started, and sometimes a few more. It includes ids without a row,
	// such as after a failed create. It excludes ids skipped because the clock moved on, and the gaps for
	// AUTO_INCREMENT rows. It may be some milliseconds old. Made is 0 if the generator does not have a method Made()
	// int64, as with [WithSource]. Made and Waits of built-in generators never decrease.
	Made int64 `json:"made"`

	// Waits counts calls of the generator that waited for the clock, a lease renewal, a range of a segment, or another
	// call. It excludes the first create's wait for a worker id. It is 0 if the generator does not have a method
	// Waits() int64.
	Waits int64 `json:"waits"`
}

// MarshalJSON writes the layout as in WORKER_REGISTRY.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	if s.Tables == nil {
		s.Tables = []TableStats{} // so JSON has an empty list instead of null
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

// MarshalJSON writes the last error as text.
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

// MarshalJSON writes durations as text, such as "1.5s".
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

// Stats returns the state of the plugin, with the tables that have a generator in alphabetical order. It sends no
// statement. It is zero before db.Use, and after Close it has no slot.
func (p *Plugin) Stats() Stats {
	s, err := p.initialized()
	if err != nil {
		return Stats{}
	}
	loc := s.locator.Load()
	stats := Stats{Layout: s.Layout, Time: loc.Clock(), Expires: loc.TimeOf(s.Layout.MaxTick() + 1)}
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

func (s *shared) slotStats() SlotStats {
	slot := s.manager.Stats()
	stats := SlotStats{
		ID: slot.Slot, WorkerIDs: slot.WorkerIDs, Given: slot.Given,
		Renewals: slot.Renewals, Failures: slot.Failures, Sessions: slot.Sessions, Reclaimed: slot.Reclaimed, Allocated: slot.Allocated,
		Lost: slot.Lost, LostCommits: slot.LostCommits, LastError: slot.LastError, Since: slot.Since,
	}
	if slot.Slot != 0 {
		stats.From, stats.Until = s.Layout.TimeOf(slot.From), s.Layout.TimeOf(slot.Until+1)
	}
	return stats
}

// Health returns nil if ids can be made now. Otherwise the error wraps [ErrNotRegistered] or [ErrClosed], or reports
// the time and reason of each failure:
//
//   - the lease of this process could not be renewed: ids are made until the granted time is used up
//   - a table cannot get ids, because it did not get a worker id or its generator could not be opened
//   - a segment could not fetch a range: ids are made until the ranges in memory are used up
//   - no id can be made, because the clock was set back, or because the layout has ended or not begun
//   - the method Health() error of a generator of WithSource or WithGenerator returned an error. Without the method,
//     the last call of the generator has failed, less than 30 s ago
//
// It wraps the database's error. It returns nil again after the plugin has recovered. It sends no statement. With
// [WithLookupOnly] it returns nil even if the database is unreachable, because only lookups send statements and they
// return their own errors.
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
