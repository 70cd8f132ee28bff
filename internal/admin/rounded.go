package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/workernode"
)

// checkRounded returns err. If a number has no row and looks rounded, err also names a row that may be meant.
func (f *Finder) checkRounded(ctx context.Context, id int64, err error) error {
	if !f.Rows || !rounded.Looks(id) || !errors.Is(err, errNoRow) && !errors.Is(err, uidplugin.ErrNoSuchID) {
		return err
	}
	original, n, failed := f.original(ctx, id)
	switch {
	case failed != nil:
		return fmt.Errorf("%w; could not check whether it was rounded: %w", err, failed)
	case n > 0:
		if idErr := (*uidplugin.IDError)(nil); errors.As(err, &idErr) {
			err = idErr.Err // drop the advice of err
		}
		return fmt.Errorf("%w; the number was rounded: it may stand for %s, such as the one with id %d; read ids as text",
			err, Count(int64(n), "row", "rows"), original)
	}
	return err
}

// original looks for rows whose key programs may have rounded to id. It returns the smallest of these keys, and how
// many rows there are.
func (f *Finder) original(ctx context.Context, id int64) (smallest int64, n int, err error) {
	var workers []int64
	for _, k := range rounded.Originals(id) {
		if parts, err := f.Plugin.Decode(uidplugin.ID(k)); err == nil && !slices.Contains(workers, parts.WorkerID) {
			workers = append(workers, parts.WorkerID)
		}
	}
	low, high := rounded.Near(id)
	nodes, err := f.Nodes.Lookup(ctx, workers...)
	tables := map[workernode.Table]bool{}
	for _, node := range nodes {
		if node.Table.Name == "" || tables[node.Table] {
			continue
		}
		tables[node.Table] = true
		t, failed := f.keyed(ctx, node.Table)
		if failed != nil || t.key.isText() {
			continue // texts are not rounded
		}
		key := t.on.identifier(t.key.Name)
		err = errors.Join(err, t.on.SQL.Query(ctx, func(rows *sql.Rows) error {
			var k int64
			err := rows.Scan(&k)
			if err == nil && rounded.Is(id, k) {
				if n++; n == 1 || k < smallest {
					smallest = k
				}
			}
			return err
		}, "SELECT "+key+" FROM "+t.quoted+" WHERE "+key+" BETWEEN ? AND ?", low, high))
	}
	return smallest, n, err
}
