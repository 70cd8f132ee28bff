package uidplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// Stats is the state of a plugin at one moment. In JSON, durations and errors are texts.
type Stats struct {
	Layout  generator.Layout     `json:"-"`
	Time    time.Time            `json:"time,omitzero"`      // by the clock of the generators
	Expires time.Time            `json:"expires,omitzero"`   // end of the layout, or of the year 9999 if that is earlier
	Space   string               `json:"id_space,omitempty"` // ID_SPACE, the name of the id space; empty with WithWorkerID
	Slot    workernode.SlotStats `json:"slot,omitzero"`      // zero with WithWorkerID
	Tables  []TableStats         `json:"tables"`
}

// TableStats is the state of the ids of one table, or of all tables that share a generator.
type TableStats struct {
	// Table is "*" with WithWorkerID or WithOneWorkerID, except for segments and WithSource. It is table.column for
	// a column that has a segment and is not a primary key.
	Table     string        `json:"table"`
	Generator string        `json:"generator"`            // name, such as "cached"
	WorkerIDs []int64       `json:"worker_ids,omitempty"` // ascending; several with lanes, empty if ids have none
	From      time.Time     `json:"from,omitzero"`        // start of the time that the worker ids may stamp
	Until     time.Time     `json:"until,omitzero"`       // end of that time, unless renewed
	Lead      time.Duration `json:"-"`                    // how far the next id is ahead of the clock; 0 if unknown

	// Made counts ids handed out since the process started, and sometimes a few more. It includes ids without a row,
	// such as after a failed create. It excludes ids skipped because the clock moved on, and the gaps for
	// AUTO_INCREMENT rows. The count may be some milliseconds old. Made is 0 if the application's generator does
	// not have a method Made() int64. Made and Waits of built-in generators never decrease.
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

// Stats returns the state of the plugin. Tables lists tables that have a generator, alphabetically. Stats sends no
// statement. The state is zero before db.Use, and has no slot after Close.
func (p *Plugin) Stats() Stats {
	s, err := p.initialized()
	if err != nil {
		return Stats{}
	}
	loc := s.locator.Load()
	stats := Stats{Layout: s.Layout, Time: loc.Clock(), Expires: loc.TimeOf(s.Layout.MaxTick() + 1)}
	if s.manager != nil {
		stats.Space, stats.Slot = s.manager.Registry().Space, s.manager.Stats()
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

// Health returns nil if ids can be made now. Otherwise the error wraps [ErrNotRegistered] or [ErrClosed], or reports
// the time and reason of each failure:
//
//   - the lease of this process could not be renewed: ids are made until the granted time is used up
//   - a table cannot get ids, because it did not get a worker id or its generator could not be opened
//   - a segment could not fetch a range: ids are made until the ranges in memory are used up
//   - no id can be made, because the clock was set back, or because the layout has ended or not begun
//   - a generator of WithSource or WithGenerator returned an error from its method Health() error, or has no such
//     method and its last call failed less than 30 s ago
//
// The error wraps the database's error. Health returns nil again after the plugin has recovered. It sends no statement.
// With [WithLookupOnly] it returns nil even if the database is unreachable, because only lookups send statements and
// they return their own errors.
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
