package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// ErrRefused is the reason why a table cannot be followed.
var ErrRefused = errors.New("the table cannot be followed")

// The limits of a slack. A slack must also be at least a tick.
const (
	MinSlack = 20 * time.Millisecond
	MaxSlack = time.Hour
)

// CheckSlack returns an error for a slack outside the limits.
func CheckSlack(slack time.Duration) error {
	if slack < MinSlack || slack > MaxSlack {
		return fmt.Errorf("the slack %v must be from %v to %v", slack, MinSlack, MaxSlack)
	}
	return nil
}

// refuse returns an error wrapping ErrRefused if rows could be missed. It ignores most settings that it may not
// read.
func refuse(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	checks := []func(context.Context, *sqldb.DB, Flavor, Table) error{refuseServer, refuseKey}
	if f == MySQL || f == MariaDB {
		checks = append(checks, refuseEngine, refuseBinlog)
	}
	if f == Postgres {
		checks = append(checks, refuseInherited, refuseElsewhere)
	}
	for _, check := range checks {
		if err := check(ctx, db, f, t); errors.Is(err, ErrRefused) {
			return err
		}
	}
	return ctx.Err()
}

// refuseServer checks that this server takes all writes to the table, because locks do not work across servers, and
// replication does not run the trigger. It sends at most two statements, because followers repeat the check.
func refuseServer(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	switch f {
	case MySQL, MariaDB:
		return refuseCluster(ctx, db)
	case Postgres:
		return refuseSubscriber(ctx, db, f, t)
	}
	return nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// refuseVersion refuses databases that only speak the protocol of MySQL.
func refuseVersion(version string) error {
	for _, name := range []string{"Vitess", "PlanetScale", "TiDB"} {
		if strings.Contains(strings.ToLower(version), strings.ToLower(name)) {
			return refused("the server is %s (its version is %s), which has no triggers", name, version)
		}
	}
	return nil
}

var integer = regexp.MustCompile(`(?i)^(tiny|small|medium|big)?(int|integer)\d?\b`)

// refuseKey checks the column of the ids, because PostgreSQL and SQLite create a trigger also for a missing column,
// and then refuse all rows.
func refuseKey(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	query := "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = " + f.schema(t) +
		" AND TABLE_NAME = " + f.text(bare(t.Name))
	switch f {
	case Postgres:
		query = "SELECT attname, format_type(COALESCE(NULLIF(typbasetype, 0), atttypid), NULL) FROM pg_attribute" +
			" JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = to_regclass(" + f.text(f.in(t, bare(t.Name))) +
			") AND attnum > 0 AND NOT attisdropped"
	case SQLite:
		query = "SELECT name, type FROM pragma_table_info(" + f.text(t.Name) + ")"
	}
	columns := map[string]string{}
	err := db.Query(ctx, func(r *sql.Rows) error {
		var name, kind string
		err := r.Scan(&name, &kind)
		if f != Postgres {
			name = strings.ToLower(name)
		}
		columns[name] = kind
		return err
	}, query)
	if err != nil || len(columns) == 0 {
		return err
	}
	key := t.Key
	if f != Postgres {
		key = strings.ToLower(key)
	}
	switch kind, ok := columns[key]; {
	case !ok:
		return refused("%s has no column %q", t.Name, t.Key)
	case !integer.MatchString(kind):
		return refused("%s.%s is %s, but ids must be in an integer column, so that they sort by time", t.Name, t.Key, kind)
	}
	return nil
}

// refuseInherited checks that no other table inherits from the table, except partitions. Queries of the table would
// return the rows of the other table, too, but INSERTs into it do not fire the trigger.
func refuseInherited(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	var child string
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&child) }, "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class"+
		" ON oid = inhparent WHERE relkind = 'r' AND oid = to_regclass("+f.text(f.in(t, bare(t.Name)))+") LIMIT 1")
	if err != nil || child == "" {
		return err
	}
	return refused("the table %s inherits from %s, and its rows are not guarded; use partitions", child, t.Name)
}

// refuseElsewhere checks that the table has no trigger of an installation in another schema. That trigger would
// compare ids with a mark that this installation does not raise.
func refuseElsewhere(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	s := newStatements(f, t)
	var other string
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&other) }, "SELECT tgfoid::regproc::text FROM pg_trigger"+
		" WHERE tgrelid = to_regclass("+f.text(f.in(t, bare(t.Name)))+") AND tgname = "+f.text(s.names.trigger)+
		" AND tgfoid IS DISTINCT FROM "+s.function())
	if err != nil || other == "" {
		return err
	}
	return refused("its trigger calls %s, which is not in the schema of the table; run DROP TRIGGER %s ON %s, call"+
		" follow.Enable, and copy the cursors of consumers (docs/following.md)", other, s.names.trigger, f.in(t, bare(t.Name)))
}

func refuseEngine(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	var engine sql.NullString
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&engine) },
		"SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+f.schema(t)+
			" AND TABLE_NAME = "+f.text(bare(t.Name))+" AND TABLE_TYPE = 'BASE TABLE'")
	if err != nil || !engine.Valid {
		return err
	}
	return engineRefusal(t.Name, engine.String)
}

func engineRefusal(table, engine string) error {
	if strings.EqualFold(engine, "InnoDB") {
		return nil
	}
	return refused("its engine is %s, but only rows of InnoDB appear and disappear with their transaction;"+
		" ALTER TABLE %s ENGINE=InnoDB", engine, table)
}

func refuseCluster(ctx context.Context, db *sqldb.DB) error {
	s := settings{}
	err := s.read(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN"+
		" ('wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode', 'read_only', 'innodb_read_only')")
	if err == nil && s["group_replication_single_primary_mode"] != "" {
		err = s.read(ctx, db, "SELECT 'members', COUNT(*) FROM performance_schema.replication_group_members"+
			" WHERE MEMBER_STATE <> 'OFFLINE'")
	}
	return errors.Join(s.clusterRefusal(), err)
}

// ErrReplicated is the reason why a table that gets rows by replication cannot be followed. In a region it can,
// because followers leave out the rows of other regions.
var ErrReplicated = fmt.Errorf("%w: replication inserts rows without the trigger, so they could be missed", ErrRefused)

// refuseReplica checks that a server of MySQL or MariaDB does not apply the changes of another server. Only the
// status of a table calls it, because these changes may concern other tables.
func refuseReplica(ctx context.Context, db *sqldb.DB, f Flavor) error {
	query := map[Flavor]string{
		MariaDB: "SHOW GLOBAL STATUS LIKE 'Slaves_running'",
		MySQL: "SELECT 'channels', COUNT(*) FROM performance_schema.replication_applier_status" +
			" WHERE SERVICE_STATE = 'ON' AND CHANNEL_NAME NOT LIKE 'group_replication%'",
	}[f]
	if query == "" {
		return nil
	}
	s := settings{}
	err := s.read(ctx, db, query)
	for _, n := range s {
		if n != "0" {
			return fmt.Errorf("%w; this server applies the changes of another one", ErrReplicated)
		}
	}
	return err
}

// refuseSubscriber refuses standbys, tables with a subscription, and servers that only speak PostgreSQL's protocol.
func refuseSubscriber(ctx context.Context, db *sqldb.DB, f Flavor, t Table) error {
	var version string
	standby, subscribed := false, false
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&version, &standby) }, "SELECT version(), pg_is_in_recovery()")
	switch {
	case err != nil:
		return err
	case strings.Contains(version, "CockroachDB") || strings.Contains(version, "-YB-"):
		return refused("the server is %s, which does not have all the locks of PostgreSQL", version)
	case standby:
		return refused("the server is a standby; follow on the primary")
	case t.Regional:
		return nil
	}
	class := newStatements(f, t).class()
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&subscribed) }, "SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = "+class+
		" OR srrelid IN (SELECT relid FROM pg_partition_tree("+class+")) OR srrelid IN (SELECT relid FROM pg_partition_ancestors("+class+")))")
	if err == nil && subscribed {
		err = fmt.Errorf("%w; a subscription names the table or a partition of it (pg_subscription_rel): follow it on the publisher,"+
			" or drop the subscription", ErrReplicated)
	}
	return err
}

func refuseBinlog(ctx context.Context, db *sqldb.DB, _ Flavor, _ Table) error {
	s := settings{}
	err := s.read(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')")
	global := s["binlog_format"]
	err = errors.Join(err, s.read(ctx, db, "SHOW SESSION VARIABLES WHERE Variable_name = 'binlog_format'"))
	return errors.Join(s.binlogRefusal(global), err)
}

// settings are variables of a server, with lower-case names.
type settings map[string]string

func (s settings) read(ctx context.Context, db *sqldb.DB, query string) error {
	return db.Query(ctx, func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		s[strings.ToLower(name)] = value
		return err
	}, query)
}

func (s settings) isOn(name string) bool { return strings.EqualFold(s[name], "ON") || s[name] == "1" }

func (s settings) clusterRefusal() error {
	const alone = "this server does not see open transactions of other servers, so their rows could be missed"
	provider, mode := s["wsrep_provider"], "group_replication_single_primary_mode"
	switch members, seen := s["members"]; {
	case s.isOn("wsrep_on") && provider != "" && provider != "none":
		return refused("the server is a node of a Galera cluster (wsrep_on); %s", alone)
	case s[mode] != "" && !s.isOn(mode) && !seen:
		return refused("%s is %s, and this account may not see whether the server is in a group; GRANT SELECT ON"+
			" performance_schema.replication_group_members TO this account", mode, s[mode])
	case s[mode] != "" && !s.isOn(mode) && members != "0":
		return refused("the server is in a replication group with several primaries (%s is %s); %s", mode, s[mode], alone)
	}
	for _, name := range []string{"read_only", "innodb_read_only"} {
		if value := s[name]; value != "" && value != "0" && !strings.EqualFold(value, "OFF") {
			return refused("the server does not take writes (%s is %s); follow on the primary", name, value)
		}
	}
	return nil
}

// binlogRefusal checks two formats of the binary log: the argument global, and the format of the session, from s.
func (s settings) binlogRefusal(global string) error {
	for scope, format := range map[string]string{"GLOBAL": global, "SESSION": s["binlog_format"]} {
		if s.isOn("log_bin") && strings.EqualFold(format, "STATEMENT") {
			return refused("@@%s.binlog_format is STATEMENT, so the trigger would run again on replicas, refuse rows there"+
				" and stop replication; SET %s binlog_format = 'ROW'", scope, scope)
		}
	}
	return nil
}

// explain adds the remedy to an error of an installation.
func explain(err error) error {
	if err != nil && strings.Contains(err.Error(), "Error 1419 ") {
		err = fmt.Errorf("%w; with a binary log, creating a trigger needs SUPER or log_bin_trust_function_creators = 1:"+
			` let an administrator set it, or run the statements of "uid sql --follow"`, err)
	}
	return err
}
