package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A Holder is an open transaction that has inserted rows into a followed table. No mark that is raised from now on
// can be published until the transaction ends.
type Holder struct {
	Session     int64     `json:"session,omitempty"`     // number of the connection or process; 0 if prepared
	Prepared    string    `json:"prepared,omitempty"`    // name of a prepared transaction, on PostgreSQL
	User        string    `json:"user,omitempty"`        // of the database
	Client      string    `json:"client,omitempty"`      // address of the client
	Application string    `json:"application,omitempty"` // application_name, on PostgreSQL
	State       string    `json:"state,omitempty"`       // such as "idle in transaction", or Sleep
	Since       time.Time `json:"since,omitzero"`        // when the transaction began; zero if unknown
}

// String names the transaction for people.
func (h Holder) String() string {
	var text strings.Builder
	switch {
	case h.Prepared != "":
		fmt.Fprintf(&text, "the prepared transaction %q", h.Prepared)
	case h.Session != 0:
		fmt.Fprintf(&text, "session %d", h.Session)
	default:
		text.WriteString("a prepared transaction")
	}
	if h.User != "" {
		text.WriteString(" of " + h.User)
	}
	if h.Application != "" {
		fmt.Fprintf(&text, " (%s)", h.Application)
	}
	if h.Client != "" {
		text.WriteString(" at " + h.Client)
	}
	if h.State != "" {
		text.WriteString(", " + h.State)
	}
	return text.String()
}

// maxHolders limits a list of holders, because a server may have thousands of open transactions.
const maxHolders = 20

// holders returns up to maxHolders open transactions that hold a gate (see doc.go): those of unknown age, and then
// the oldest. MariaDB shows only those for which the closer waits at this moment. An error names the privilege or
// setting that may be missing.
func (s *statements) holders(ctx context.Context, db *sqldb.DB, now time.Time) (list []Holder, err error) {
	query := ""
	switch s.flavor {
	case Postgres:
		query = s.holdersOfPostgres()
	case MySQL:
		query = s.holdersOfMySQL()
	case MariaDB:
		query = s.holdersOfMariaDB()
	default:
		return nil, nil // SQLite has one writer at a time
	}
	if s.flavor == MySQL {
		isOn := true
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&isOn) }, "SELECT @@performance_schema")
		if err == nil && !isOn { // its tables are empty
			err = errors.New("performance_schema is OFF, so the transactions that have inserted rows cannot be listed")
		}
		if err != nil {
			return nil, err
		}
	}
	err = db.Query(ctx, func(r *sql.Rows) error {
		var h Holder
		var age sql.NullFloat64 // in seconds
		err := r.Scan(&h.Session, &h.Prepared, &h.User, &h.Client, &h.Application, &h.State, &age)
		if age.Valid {
			h.Since = now.Add(-time.Duration(age.Float64 * float64(time.Second))).Round(time.Millisecond)
		}
		list = append(list, h)
		return err
	}, query+" LIMIT "+strconv.Itoa(maxHolders))
	if err != nil {
		return nil, fmt.Errorf("list the transactions that have inserted rows (%s): %w", rights[s.flavor], err)
	}
	if slices.ContainsFunc(list, func(h Holder) bool { return h.Since.IsZero() }) && s.flavor == Postgres {
		err = errors.New("to see since when other users' transactions are open, this user needs the role pg_monitor")
	}
	return list, err
}

var rights = map[Flavor]string{
	Postgres: "it needs the role pg_monitor",
	MySQL:    "it needs SELECT on performance_schema, and PROCESS",
	MariaDB:  "it needs PROCESS",
}

// holdersOfPostgres reads pg_locks. Every user may read it, but states and times of other users need a role.
func (s *statements) holdersOfPostgres() string {
	return fmt.Sprintf(`SELECT COALESCE(l.pid, 0), COALESCE(p.gid, ''), COALESCE(a.usename, p.owner, ''),
		COALESCE(host(a.client_addr), ''), COALESCE(a.application_name, ''), COALESCE(a.state, ''),
		extract(epoch FROM clock_timestamp() - COALESCE(a.xact_start, p.prepared))
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
		AND x.locktype = 'transactionid' LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
		WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ShareLock' AND l.objsubid = 1
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (l.classid::bigint << 32) + l.objid::bigint IN (%s, %s) ORDER BY 7 DESC NULLS FIRST`,
		s.advisory(usedGate), s.advisory(idleGate))
}

// holdersOfMySQL reads the locks on the rows of the two gates, grouped by transaction, because one may hold both.
func (s *statements) holdersOfMySQL() string {
	return "SELECT COALESCE(MAX(t.PROCESSLIST_ID), 0), '', COALESCE(MAX(t.PROCESSLIST_USER), ''), " +
		"COALESCE(MAX(t.PROCESSLIST_HOST), ''), '', COALESCE(MAX(t.PROCESSLIST_COMMAND), ''), " +
		"MAX(TIMESTAMPDIFF(MICROSECOND, x.trx_started, SYSDATE(6))) / 1e6 age " +
		"FROM performance_schema.data_locks l LEFT JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID " +
		"LEFT JOIN information_schema.INNODB_TRX x ON x.trx_id = l.ENGINE_TRANSACTION_ID " +
		"WHERE l.OBJECT_SCHEMA = " + s.flavor.schema(s.table) + " AND l.OBJECT_NAME = " + s.flavor.text(gateTable) +
		" AND l.LOCK_TYPE = 'RECORD' AND l.LOCK_STATUS = 'GRANTED' AND l.LOCK_MODE LIKE 'S%'" +
		" AND l.LOCK_DATA IN " + s.gateKeys() +
		" GROUP BY l.ENGINE_TRANSACTION_ID ORDER BY age IS NULL DESC, age DESC"
}

// holdersOfMariaDB reads which transactions others wait for, because MariaDB has no list of all locks.
func (s *statements) holdersOfMariaDB() string {
	table := "CONCAT('`', " + s.flavor.schema(s.table) + ", '`.`" + gateTable + "`')"
	return "SELECT x.trx_mysql_thread_id, '', COALESCE(MAX(p.USER), ''), COALESCE(MAX(p.HOST), ''), '', " +
		"COALESCE(MAX(p.COMMAND), ''), MAX(TIMESTAMPDIFF(MICROSECOND, x.trx_started, SYSDATE(6))) / 1e6 age " +
		"FROM information_schema.INNODB_LOCK_WAITS w " +
		"JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.blocking_lock_id " +
		"JOIN information_schema.INNODB_TRX x ON x.trx_id = w.blocking_trx_id " +
		"LEFT JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id " +
		"WHERE l.lock_table = " + table + " AND l.lock_mode = 'S' AND l.lock_data IN " + s.gateKeys() +
		" GROUP BY x.trx_id, x.trx_mysql_thread_id ORDER BY age DESC"
}

// gateKeys lists the keys of the table's gates, as InnoDB writes them in its lists of locks.
func (s *statements) gateKeys() string {
	return fmt.Sprintf("('%d', '%d')", s.names.gate+usedGate, s.names.gate+idleGate)
}
