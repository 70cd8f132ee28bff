package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A presence is a session that may have made ids at a time.
type presence struct {
	uidplugin.Session
	Last time.Time `json:"last"` // no id of the session is newer
}

// present lists the processes that may have made ids at a time.
func (a *app) present(ctx context.Context, when string) error {
	t, err := a.time(when)
	if err != nil {
		return err
	}
	d, err := a.open(ctx, reads)
	if err != nil {
		return err
	}
	defer d.close()
	tick := d.layout.TickAt(t)
	if tick < 0 || tick > d.layout.MaxTick() {
		return fmt.Errorf("--at %s is outside of the layout, whose ids have times from %s to %s",
			at(t), at(d.layout.Epoch), at(d.layout.Expires()))
	}
	found, err := d.nodes.Origins(ctx, tick)
	if err != nil {
		return err
	}
	g := newGrid(a.out, "SLOT", "FROM", "LAST", "APPLICATION", "HOST", "PORT", "KIND", "LAUNCHED")
	for _, o := range found {
		p := presence{uidplugin.Session{Slot: o.Slot, From: d.timeOf(o.Start + 1)}, d.timeOf(o.Last)}
		if !o.Pruned() {
			p.Application, p.Host, p.Port, p.Kind, p.Launched = o.Application, o.Host, o.Port, o.Kind, o.Launched
		}
		if o.Until >= 0 {
			p.Until = d.timeOf(o.Until + 1)
		}
		if a.json {
			if err := writeJSON(a.out, p); err != nil {
				return err
			}
			continue
		}
		g.add(append([]string{strconv.FormatInt(p.Slot, 10), at(p.From), at(p.Last)}, processCells(p.Session)...)...)
	}
	if a.json {
		return nil
	}
	return g.flush()
}
