package sqldb

import (
	"context"
	"database/sql"
	"fmt"
)

// A setting lets a server lose acknowledged commits when it crashes. We check crashes of the server process only,
// because a crash of the machine, or a failover, takes longer than Lead.
type setting struct {
	name, value string

	loses string
}

var settings = map[string][]setting{
	"mysql": {
		{"innodb_flush_log_at_trx_commit", "0", "up to a second of commits when the server crashes"},
	},
	"postgres": {
		{"synchronous_commit", "off", "up to three times wal_writer_delay of commits when the server crashes"},
	},
}

// DurabilityRisks returns the settings that may lose acknowledged commits in a crash, and the extent of the loss. It
// returns nil if it finds none or cannot read them.
func (d *DB) DurabilityRisks(ctx context.Context) (risks []string) {
	query := map[string]string{
		"mysql": `SHOW VARIABLES WHERE VARIABLE_NAME = 'innodb_flush_log_at_trx_commit'`,
		// The value of the session.
		"postgres": `SELECT name, setting FROM pg_settings WHERE name = 'synchronous_commit'`,
	}[d.Dialect()]
	if query == "" {
		return nil
	}
	_ = d.Query(ctx, func(rows *sql.Rows) error {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		for _, s := range settings[d.Dialect()] {
			if s.name == name && s.value == value {
				risks = append(risks, fmt.Sprintf("%s = %s loses %s", name, value, s.loses))
			}
		}
		return nil
	}, query)
	return risks
}

// OneDatabase returns an error if each connection of the pool has a separate database, as with ":memory:" on SQLite.
// The table must exist.
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
