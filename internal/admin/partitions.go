// wing: partitions

package admin

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/partition"
)

// Partitions returns the changes of the partitions of a table, which people name as in the model, or after the name of
// its database.
func (d *DB) Partitions(ctx context.Context, r partition.Request) ([]partition.Step, error) {
	_, home, table := d.named(ctx, r.Table)
	r.Table = table
	return partition.Steps(ctx, home.SQL, d.Layout, r)
}
