//go:build unix

package chaos_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
)

// batches makes ids of a table in batches.
func (c *chaosProcess) batches(m chaosMaker, table int) {
	ids, last := make([]int64, c.Batch), int64(0)
	every := time.Duration(float64(c.Batch) / c.Rate * float64(time.Second))
	due := time.Now()
	for {
		err := c.call(table, table, func(ctx context.Context) error { return m.fill(ctx, table, ids) })
		if err != nil {
			return
		}
		last = c.record(table, last, ids)
		due = due.Add(every)
		if now := time.Now(); due.Before(now.Add(-time.Second)) {
			due = now
		}
		select {
		case <-c.quit:
			time.Sleep(time.Millisecond) // goes on while the maker is closed
		case <-time.After(time.Until(due)):
		}
	}
}

// singles makes single ids of all tables in turn, and inserts rows.
func (c *chaosProcess) singles(m chaosMaker) {
	last := make([]int64, c.Tables)
	for i := 0; ; i++ {
		table := i % c.Tables
		var id int64
		err := c.call(c.Tables, table, func(ctx context.Context) (err error) {
			id, err = m.next(ctx, table)
			return err
		})
		if err != nil {
			return
		}
		last[table] = c.record(table, last[table], []int64{id})
		if i%32 == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			ids, err := m.insert(ctx, table, 10)
			cancel()
			if err == nil || ids[0] > 0 { // an INSERT that failed may have been executed
				last[table] = c.record(table, last[table], ids)
			}
			if err != nil && duplicateKey.MatchString(err.Error()) {
				c.event("fault", fmt.Sprintf("the key of a row is there already: %v; ids %d", err, ids))
			}
		}
		select {
		case <-c.quit:
			time.Sleep(time.Millisecond)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var duplicateKey = regexp.MustCompile(`Error 1062|SQLSTATE 23505`)

// call calls f until it succeeds, and records the time if it was long. It returns an error if the maker was closed.
func (c *chaosProcess) call(caller, table int, f func(ctx context.Context) error) error {
	s := chaosStall{table: chaosTables[table].name, begin: time.Now(), awake: c.awake.Load(), on: true}
	c.mu.Lock()
	c.stalls[caller] = s
	c.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := f(ctx)
		cancel()
		if errors.Is(err, generator.ErrClosed) || errors.Is(err, uidplugin.ErrClosed) {
			select {
			case <-c.quit:
			default:
				c.event("fault", "closed although nobody has closed it:", err)
			}
			return err
		}
		if err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awake.Load()-s.awake > int64(100*time.Millisecond) {
		c.stalled("stalled", s)
	}
	c.stalls[caller].on = false
	return nil
}

// stalled records a stall that has ended, or that continues.
func (c *chaosProcess) stalled(what string, s chaosStall) {
	now, awake := time.Now(), time.Duration(c.awake.Load()-s.awake)
	c.event(what, s.begin.UnixNano(), now.UnixNano(), awake.Milliseconds(), c.stepped.Load(),
		now.Sub(s.begin)-awake > 300*time.Millisecond, s.table)
}

// record writes ids as ranges of consecutive numbers. It returns the last id, which is last for the next call,
// because the ids of a caller ascend.
func (c *chaosProcess) record(table int, last int64, ids []int64) int64 {
	const mask = 1<<chaosSequenceBits - 1
	var out []byte
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[n-1]+1 && ids[n]&mask != 0 {
			n++
		}
		if ids[0] <= last {
			c.event("fault", fmt.Sprintf("id %d of %s came after %d", ids[0], chaosTables[table].name, last))
		}
		last = ids[n-1]
		out = binary.LittleEndian.AppendUint64(out, uint64(table))
		out = binary.LittleEndian.AppendUint64(out, uint64(ids[0]))
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
		ids = ids[n:]
	}
	if _, err := c.ids.Write(out); err != nil {
		c.event("fault", err)
	}
	return last
}
