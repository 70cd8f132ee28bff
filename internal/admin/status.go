package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// A Status summarizes an id space.
type Status struct {
	Layout    string           `json:"layout"`
	Until     Instant          `json:"until"` // end of the layout
	Region    Region           `json:"region"`
	Given     int64            `json:"worker_ids_given"`   // of the region
	All       int64            `json:"worker_ids"`         // of the region
	PerDay    float64          `json:"worker_ids_per_day"` // average of the last week
	UsedUp    *Instant         `json:"used_up,omitempty"`  // when worker ids run out at this rate; nil if not before Until
	Slots     map[string]int64 `json:"slots"`              // by state
	Databases []string         `json:"databases"`          // other than the registry's
	Findings  []Finding        `json:"findings"`
}

// An Instant is a time in JSON. It supports years after 9999, which some layouts reach and [time.Time] rejects.
type Instant struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + time.RFC3339Nano + `"`)), nil
}

// Status returns the state of the id space, with the findings of the checks that are quick.
func (d *DB) Status(ctx context.Context) (s Status, err error) {
	now, err := d.clock(ctx)
	if err != nil {
		return s, err
	}
	s = Status{
		Layout: d.Layout.String(), Until: Instant{d.Layout.Expires()}, Region: d.Region(),
		Databases: []string{}, Findings: []Finding{},
	}
	s.Given, s.All = d.given()
	if s.Slots, err = d.countSlots(ctx, now); err != nil {
		return s, err
	}
	s.Findings = append(s.Findings, standstill(s.Slots)...)
	const week = 7 * 24 * time.Hour
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&s.PerDay) },
		`SELECT COUNT(*) FROM "WORKER_NODE" WHERE "START_TICK" >= ?
		AND NOT EXISTS (SELECT 1 FROM "WORKER_SLOT" "S" WHERE "S"."ID" = "SLOT" AND "REGION" <> ?)`,
		max(d.Layout.TickAt(now.Add(-week)), 0), d.Registry.Region.N)
	if err != nil {
		return s, fmt.Errorf("count worker ids: %w", err)
	}
	s.PerDay /= 7
	if days := float64(s.All-s.Given) / s.PerDay; s.PerDay > 0 && days < s.Until.Sub(now).Hours()/24 {
		s.UsedUp = &Instant{now.Add(time.Duration(days * float64(24*time.Hour)))}
	}
	tables, err := d.TableNames(ctx)
	for _, t := range tables {
		if t.Database != "" && !slices.Contains(s.Databases, t.Database) {
			s.Databases = append(s.Databases, t.Database)
		}
	}
	for _, look := range []func(context.Context) ([]Finding, error){d.checkClock, d.checkWrites, d.checkLayout} {
		if err == nil {
			var found []Finding
			found, err = look(ctx)
			s.Findings = append(s.Findings, found...)
		}
	}
	return s, err
}
