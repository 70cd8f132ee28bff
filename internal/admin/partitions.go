// wing: partitions

package admin

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/partition"
)

// Partitions returns the changes that the partitions of a table need. People name the table as in the model, or as
// DATABASE.TABLE.
func (d *DB) Partitions(ctx context.Context, r partition.Request) ([]partition.Step, error) {
	_, home, table := d.named(ctx, r.Table)
	r.Table = table
	return partition.Steps(ctx, home.SQL, d.Layout, r)
}
