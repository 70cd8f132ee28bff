// wing: follow

package migrations

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow"
)

// FollowStatementsFor returns the statements that follow.Enable (up) and follow.Disable (down) run for a table, for
// people who run migrations themselves. dialect is mysql, mariadb, postgres or sqlite. table is the name as in the
// model, and key the column of the ids. schema is that of the table on PostgreSQL; empty means public. Other
// dialects ignore it. slack is how old an id may be when its INSERT arrives, from 20 ms to an hour; 0 means 1 s.
//
// Run the statements in their order and one at a time, because triggers contain semicolons. The last statement of
// up stores which trigger was created, so run it again after each change of the trigger. down keeps the tables
// UID_FOLLOW, UID_CURSOR and, except on PostgreSQL, UID_FOLLOW_GATE.
//
// A trigger stays with its table when the table is renamed, as by gh-ost and pt-online-schema-change. If CREATE TRIGGER
// fails on MySQL, MariaDB or SQLite because the trigger exists, run down first: it drops the trigger wherever it is.
//
// follow.Enable also checks that no row can be missed. For example, the key must be an integer. On MySQL and
// MariaDB the engine must be InnoDB, only one server may take writes, and binlog_format may not be STATEMENT.
//
// The error wraps [errors.ErrUnsupported] for another dialect; an invalid slack is an error, too.
func FollowStatementsFor(dialect, schema, table, key string, slack time.Duration) (up, down []string, err error) {
	f := follow.Flavor(dialect)
	switch f {
	case follow.MySQL, follow.MariaDB, follow.Postgres, follow.SQLite:
	default:
		return nil, nil, fmt.Errorf("migrations: tables cannot be followed on the dialect %q: %w", dialect, errors.ErrUnsupported)
	}
	if f != follow.Postgres {
		schema = ""
	}
	t := follow.Table{Name: table, Schema: schema, Key: key, Slack: cmp.Or(slack, time.Second)}
	if err := follow.CheckSlack(t.Slack); err != nil {
		return nil, nil, fmt.Errorf("migrations: %w", err)
	}
	return f.Install(t), f.Uninstall(t), nil
}
