package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// A setting is what a server, or a session, is set to, and what may be lost with it.
type setting struct {
	name, value string

	// crash: the server's crash loses the last commits, and it may be back before
	// anybody notices. Otherwise it takes the machine's, or a failover, and matters only to
	// those who trust the database to keep what it has acknowledged.
	crash bool
	loses string
}

var settings = map[string][]setting{
	"mysql": {
		{"innodb_flush_log_at_trx_commit", "0", true, "up to a second of commits when the server crashes"},
		{"innodb_flush_log_at_trx_commit", "2", false, "up to a second of commits when the machine crashes"},
		{"sync_binlog", "0", false, "commits that the binary log has not got when the machine crashes"},
	},
	"postgres": {
		{"synchronous_commit", "off", true, "up to three times wal_writer_delay of commits when the server crashes"},
		{"synchronous_commit", "local", false, "commits that a standby has not got when it is promoted"},
		{"fsync", "off", false, "commits when the machine crashes"},
	},
}

// Forgetful returns the settings of the database with which it may lose commits that it
// has acknowledged, each with what is lost; none if there are none, or they cannot be
// read. trusted tells that everything rests on its keeping them: then there are more of
// them. What replicas have not got yet when one is promoted no setting tells.
func (d *DB) Forgetful(ctx context.Context, trusted bool) (risks []string) {
	query := map[string]string{
		"mysql": `SHOW VARIABLES WHERE VARIABLE_NAME IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin')`,
		// The session's own.
		"postgres": `SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync')`,
	}[d.Dialect()]
	if query == "" {
		return nil
	}
	binlog := false
	_ = d.Query(ctx, func(rows *sql.Rows) error {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		binlog = binlog || name == "log_bin" && value == "ON"
		for _, s := range settings[d.Dialect()] {
			if s.name == name && s.value == value && (s.crash || trusted) {
				risks = append(risks, fmt.Sprintf("%s = %s loses %s", name, value, s.loses))
			}
		}
		return nil
	}, query)
	if !binlog { // then it does not matter how it is synced
		risks = slices.DeleteFunc(risks, func(r string) bool { return strings.HasPrefix(r, "sync_binlog") })
	}
	return risks
}
