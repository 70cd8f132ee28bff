package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/workernode"
)

// joinWithPlugin is a process with the plugin. It takes an id of each table from time to time, so that it renews.
func joinWithPlugin(p *participant) (func() error, error) {
	models := tables(p.tables)
	plugin, err := use(p.db, uidplugin.WithModels(models...), uidplugin.WithTimeout(time.Minute),
		uidplugin.WithHost(workernode.Host{Port: fmt.Sprint("bench", p.number)}))
	if err != nil {
		return nil, err
	}
	p.group.Go(func() {
		for p.wait(p.interval / 4) {
			for _, model := range models {
				if _, err := plugin.NextID(context.Background(), model); err != nil {
					p.failed(err)
					return
				}
			}
		}
	})
	return func() error { return closePlugin(plugin) }, nil
}

// joinDisposable is a process that inserts a row for each table when it starts, and has done with it: UidGenerator's
// way. Its worker ids are never used again.
func joinDisposable(p *participant) (func() error, error) {
	for i := range p.tables {
		err := p.db.Exec("INSERT INTO disposable (id, host_name, table_name) VALUES (?, ?, ?)",
			p.number*p.tables+i+1, "bench", fmt.Sprint("table", i)).Error
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// joinPerTable is a process that leases a row for each table and renews each: the way of those whose lease is the
// worker id itself. It renews as often as the plugin does.
func joinPerTable(p *participant) (func() error, error) {
	holder := fmt.Sprint("bench", p.number)
	var values strings.Builder
	var args []any
	for i := range p.tables {
		if i > 0 {
			values.WriteByte(',')
		}
		values.WriteString("(?, ?, ?, 0)")
		args = append(args, p.number*p.tables+i+1, fmt.Sprint("table", i), holder)
	}
	if err := p.db.Exec("INSERT INTO leases (id, table_name, holder, seen) VALUES "+values.String(),
		args...).Error; err != nil {
		return nil, err
	}
	p.group.Go(func() {
		if !p.wait(rand.N(p.interval)) { // processes do not renew in step
			return
		}
		for next := time.Now(); ; {
			for i := range p.tables {
				err := p.db.Exec("UPDATE leases SET seen = ? WHERE id = ? AND holder = ?", time.Now().UnixMilli(),
					p.number*p.tables+i+1, holder).Error
				if err != nil {
					p.failed(err)
					return
				}
				p.renewed(1)
				select {
				case <-p.stop:
					return
				default:
				}
			}
			next = next.Add(p.interval)
			if !p.wait(max(0, time.Until(next))) {
				return
			}
		}
	})
	return nil, nil
}

// wait waits for d. It reports false if the process is to end.
func (p *participant) wait(d time.Duration) bool {
	select {
	case <-p.stop:
		return false
	case <-time.After(d):
		return true
	}
}
