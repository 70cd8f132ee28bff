package sqldb

import (
	"context"
	"database/sql"
	"fmt"
)

// risks are settings with which a server loses acknowledged commits when its process crashes. Crashes of the
// machine and failovers do not count here: they take longer than Lead, so their lost commits do no harm.
var risks = map[string]struct{ query, value, loses string }{
	"mysql": {
		`SHOW VARIABLES WHERE VARIABLE_NAME = 'innodb_flush_log_at_trx_commit'`, "0",
		"innodb_flush_log_at_trx_commit = 0 loses up to a second of commits when the server crashes",
	},
	"postgres": { // the value of the session
		`SELECT name, setting FROM pg_settings WHERE name = 'synchronous_commit'`, "off",
		"synchronous_commit = off loses up to three times wal_writer_delay of commits when the server crashes",
	},
}

// DurabilityRisk describes the setting with which the server may lose acknowledged commits in a crash. The text is
// empty if there is no such setting, or if it cannot be read.
func (d *DB) DurabilityRisk(ctx context.Context) (risk string) {
	r, ok := risks[d.Dialect()]
	if !ok {
		return ""
	}
	_ = d.Query(ctx, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		if value == r.value {
			risk = r.loses
		}
		return err
	}, r.query)
	return risk
}

// OneDatabase returns an error if each connection of the pool has a separate database, as with ":memory:" on
// SQLite. The table must exist.
func (d *DB) OneDatabase(ctx context.Context, table string) error {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil || d.Dialect() != "sqlite" || pool.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var conns [2]*sql.Conn
	for i := range conns {
		if conns[i], err = pool.Conn(ctx); err != nil {
			return late(err, d.timeout)
		}
		defer func() { _ = conns[i].Close() }()
	}
	var file string
	if err := conns[0].QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file); err != nil || file != "" {
		return nil // all connections share the file
	}
	for _, conn := range conns {
		var n int
		if err := conn.QueryRowContext(ctx, d.Translate(`SELECT COUNT(*) FROM "`+table+`"`)).Scan(&n); err != nil {
			return fmt.Errorf("each connection of this pool has its own in-memory database (%w): limit the pool to one connection"+
				" (SetMaxOpenConns(1) before db.Use), or share the database: file::memory:?cache=shared", err)
		}
	}
	return nil
}
