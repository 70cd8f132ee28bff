// wing: partitions

package migrations

import (
	"context"
	"fmt"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/partition"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// PartitionStatements returns the statements that create the next partitions of a table and drop its old ones, by the
// time of the ids. It only reads. Run the statements in their order and one at a time, outside of a transaction.
//
// layout is the layout of the ids, table the name as in the model. The table's primary key must be one column with
// ids. every is the length of a period: month, week or day, in UTC. The present period gets a partition; ahead is
// the number of later periods that get one, too, from 1 to 1,000. keep is the number of complete periods to keep
// before the present one; 0 drops nothing. The clock is the database's.
//
// For a table that is not partitioned, the first statements convert it. Read the comments at the beginning of a
// statement before you run it; see docs/partitions.md.
//
// The error wraps [errors.ErrUnsupported] for databases other than PostgreSQL, MySQL and MariaDB.
func PartitionStatements(
	ctx context.Context, db *gorm.DB, layout generator.Layout, table, every string, ahead, keep int,
) ([]string, error) {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	steps, err := partition.Steps(ctx, d, layout, partition.Request{Table: table, Every: every, Ahead: ahead, Keep: keep})
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var list []string
	for _, s := range steps {
		list = append(list, s.Statements()...)
	}
	return list, nil
}
