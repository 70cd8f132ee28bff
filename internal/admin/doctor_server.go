package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

// maxDifference limits the difference of clocks: the protocol assumes at most a second, and one more is allowed
// because the database's clock is read in whole seconds.
const maxDifference = 2 * time.Second

func (d *DB) checkClock(ctx context.Context) ([]Finding, error) {
	err := d.Nodes.CheckClock(ctx, d.Now, maxDifference)
	if !errors.Is(err, workernode.ErrClock) {
		return nil, err
	}
	theirs, err := d.clock(ctx)
	return []Finding{{
		Code: CodeClock,
		Text: fmt.Sprintf("the clock of this machine is at %s and the database's at %s, but they may differ by at most "+
			"a second, because ids have the time of the process that makes them",
			Time(d.Now()), Time(theirs)),
		Advice: "Correct the wrong clock, and use NTP on both machines. A process does not start if its clock is " +
			"10 minutes off.",
	}}, err
}

// writable has the queries, by dialect, for the settings that make a server read-only.
var writable = map[string]string{
	mysql: `SHOW GLOBAL VARIABLES WHERE Variable_name IN
		('read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only')`,
	postgres: `SELECT name, setting FROM pg_settings
		WHERE name = 'default_transaction_read_only' AND source <> 'client'
		UNION ALL SELECT 'hot standby', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END`,
}

func (d *DB) checkWrites(ctx context.Context) (list []Finding, err error) {
	query := writable[d.SQL.Dialect()]
	if query == "" {
		return nil, nil
	}
	s, err := d.read(ctx, query)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		f := Finding{Code: CodeReadOnly, Text: name + " is " + s[name] + ", so the server rejects writes of the " +
			"application: processes cannot renew their slots, and creates fail",
			Advice: "If it is a replica, connect the application and this command to the primary."}
		switch {
		case s[name] == "" || s[name] == "0" || strings.EqualFold(s[name], "off"):
			continue
		case strings.HasPrefix(name, "default_"):
			f.Advice = "It may be set for the server, the database or the user: ALTER SYSTEM, ALTER DATABASE or ALTER ROLE."
		case name == "tx_read_only" && s["transaction_read_only"] != "":
			continue // older name of the same setting
		case name != "innodb_read_only" && d.SQL.Dialect() == mysql:
			f.Fix = "SET GLOBAL " + name + " = OFF"
		}
		list = append(list, f)
	}
	return list, err
}

// settings are server variables, with lower-case names.
type settings map[string]string

// durability has the queries, by dialect, for the settings that decide whether a crash loses commits.
var durability = map[string]string{
	mysql: `SHOW GLOBAL VARIABLES WHERE Variable_name IN
		('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin')`,
	postgres: `SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')
		UNION ALL SELECT 'source', source FROM pg_settings WHERE name = 'synchronous_commit'
		UNION ALL SELECT 'database', quote_ident(current_database())
		UNION ALL SELECT 'user', quote_ident(session_user)`,
}

// read runs a statement that returns names and values.
func (d *DB) read(ctx context.Context, query string) (settings, error) {
	s := settings{}
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var name string
		var value sql.NullString
		err := rows.Scan(&name, &value)
		s[strings.ToLower(name)] = value.String
		return err
	}, query)
	return s, err
}

func (d *DB) checkDurability(ctx context.Context) ([]Finding, error) {
	query := durability[d.SQL.Dialect()]
	if query == "" {
		return nil, nil // SQLite's settings belong to the application's connections
	}
	s, err := d.read(ctx, query)
	if err != nil {
		return nil, err
	}
	return durabilityFindings(s), nil
}

func durabilityFindings(s settings) (list []Finding) {
	const lost = ": if a lost commit granted ids to a process, two rows could get the same id"
	flush := s["innodb_flush_log_at_trx_commit"]
	if crash := map[string]string{"0": "server", "2": "machine"}[flush]; crash != "" {
		list = append(list, Finding{Code: CodeInnoDBFlush, Fix: "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
			Text: "innodb_flush_log_at_trx_commit is " + flush + ", so a crash of the " + crash + " loses up to a second of " +
				"commits" + lost})
	}
	if v, ok := s["sync_binlog"]; ok && v != "1" && isOn(s["log_bin"]) {
		list = append(list, Finding{Code: CodeSyncBinlog, Fix: "SET GLOBAL sync_binlog = 1",
			Text: "sync_binlog is " + v + ", so a crash of the machine loses commits, even some that replicas " +
				"have" + lost})
	}
	for i := range list {
		list[i].Advice = "Set it in the configuration of the server as well."
	}
	if s["fsync"] == "off" {
		list = append(list, Finding{Code: CodeFsync, Fix: "ALTER SYSTEM SET fsync = on",
			Text: "fsync is off, so a crash of the machine loses commits, or the whole database" + lost, Advice: reload})
	}
	if s["synchronous_commit"] == "off" {
		f := Finding{Code: CodeSynchronousCommit, Text: "synchronous_commit is off for this connection, so a crash of " +
			"the server loses the latest commits" + lost}
		f.Fix, f.Advice = synchronousCommitFix(s)
		list = append(list, f)
	}
	return list
}

// synchronousCommitFix returns the statement that turns synchronous_commit on where it was turned off.
func synchronousCommitFix(s settings) (fix, advice string) {
	const open = " Open connections keep it off, so restart the processes."
	switch s["source"] {
	case "database":
		return "ALTER DATABASE " + s["database"] + " RESET synchronous_commit", "It is set for the database." + open
	case "user":
		return "ALTER ROLE " + s["user"] + " RESET synchronous_commit", "It is set for this user." + open
	case "database user":
		return "ALTER ROLE " + s["user"] + " IN DATABASE " + s["database"] + " RESET synchronous_commit",
			"It is set for this user in this database." + open
	case "client":
		return "", "The data source name or PGOPTIONS of this command sets it; remove it, for the application as well."
	case "command line":
		return "", "The command line of the server sets it; remove it and restart the server."
	}
	return "ALTER SYSTEM SET synchronous_commit = on",
		reload + " It may also be set for the user of the application (ALTER ROLE ... RESET), or in its data source name."
}

// reload is advice for ALTER SYSTEM. It is not part of the fix, because PostgreSQL rejects ALTER SYSTEM together
// with another statement.
const reload = "It takes effect with SELECT pg_reload_conf()."

func isOn(value string) bool {
	return strings.EqualFold(value, "ON") || value == "1"
}

// A replication describes the server's replicas.
type replication struct {
	replicas int // connected replicas
	waiting  int // replicas that commits wait for
	provider string
	galera   bool
}

// checkReplication looks for replicas that commits do not wait for, and for clusters that may split.
func (d *DB) checkReplication(ctx context.Context) ([]Finding, error) {
	var r replication
	var err error
	switch d.SQL.Dialect() {
	case mysql:
		r, err = d.mysqlReplication(ctx)
	case postgres:
		r, err = d.postgresReplication(ctx)
	}
	found := r.findings(d.lead(), d.SQL.Dialect())
	return found, err
}

func (r replication) findings(lead time.Duration, dialect string) (list []Finding) {
	if r.replicas > 0 && r.waiting == 0 {
		f := Finding{Code: CodeAsyncReplicas,
			Text: fmt.Sprintf("%s connected, but commits do not wait for any: if one is promoted within %v of "+
				"commits that it lacks, two rows could get the same id",
				Count(int64(r.replicas), "replica", "replicas"), lead+2*time.Second),
			Advice: "A slower failover is safe. For a faster one, make commits wait for a replica " +
				"(semi-synchronous replication), or set a shorter WithLead."}
		if dialect == postgres {
			f.Advice = "A slower failover is safe. For a faster one, make commits wait for a " +
				"replica, or set a shorter WithLead. " + reload
			f.Fix = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'"
		}
		list = append(list, f)
	}
	options := map[string]string{}
	for option := range strings.SplitSeq(r.provider, ";") {
		name, value, _ := strings.Cut(option, "=")
		options[strings.TrimSpace(name)] = strings.ToLower(strings.TrimSpace(value))
	}
	yes := []string{"true", "yes", "y", "on", "1"} // Galera shows a value as it was set, and all of these mean true
	for _, name := range []string{"pc.ignore_sb", "pc.ignore_quorum"} {
		if v := options[name]; r.galera && slices.Contains(yes, v) {
			list = append(list, Finding{Code: CodeSplitBrain, Fix: "SET GLOBAL wsrep_provider_options = '" + name + "=false'",
				Text: "Galera has " + name + " = " + v + ", so all parts of a divided cluster accept writes, and two " +
					"rows could get the same id",
				Advice: "Set it in the configuration of all nodes as well."})
		}
	}
	return list
}

func (d *DB) mysqlReplication(ctx context.Context) (r replication, err error) {
	vars, err := d.read(
		ctx,
		`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'wsrep_on', 'wsrep_provider', 'wsrep_provider_options')`,
	)
	if err != nil {
		return r, err
	}
	r.galera = isOn(vars["wsrep_on"]) && vars["wsrep_provider"] != "" && vars["wsrep_provider"] != "none"
	r.provider = vars["wsrep_provider_options"]
	if !isOn(vars["log_bin"]) {
		return r, nil // replicas cannot connect
	}
	status, err := d.read(
		ctx,
		`SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Rpl_semi_sync_master_status',
		'Rpl_semi_sync_source_status', 'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients')`,
	)
	if err != nil {
		return r, err
	}
	for _, kind := range []string{"master", "source"} {
		if n, err := strconv.Atoi(status["rpl_semi_sync_"+kind+"_clients"]); err == nil &&
			isOn(status["rpl_semi_sync_"+kind+"_status"]) {
			r.waiting += n
		}
	}
	if n, err := strconv.Atoi(status["slaves_connected"]); err == nil { // MariaDB
		r.replicas = n
		return r, nil
	}
	may, err := d.maySeeProcesses(ctx)
	switch {
	case err != nil:
		return r, err
	case !may:
		return r, errors.New("listing replicas needs the privilege PROCESS: GRANT PROCESS ON *.* TO this user")
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&r.replicas) },
		`SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`)
	return r, err
}

// maySeeProcesses reports whether this user sees other users' connections on MySQL.
func (d *DB) maySeeProcesses(ctx context.Context) (may bool, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var grant string
		err := rows.Scan(&grant)
		grant, _, global := strings.Cut(strings.ToUpper(grant), " ON *.*")
		may = may || global && (strings.Contains(grant, "PROCESS") || strings.Contains(grant, "ALL PRIVILEGES"))
		return err
	}, `SHOW GRANTS`)
	return may, err
}

func (d *DB) postgresReplication(ctx context.Context) (r replication, err error) {
	hidden := 0
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var state sql.NullString
		err := rows.Scan(&state)
		r.replicas++
		switch {
		case !state.Valid:
			hidden++
		case state.String == "sync" || state.String == "quorum":
			r.waiting++
		}
		return err
	}, `SELECT sync_state FROM pg_stat_replication`)
	if err == nil && hidden > 0 {
		return replication{}, errors.New("reading the state of replicas needs the role pg_monitor: GRANT pg_monitor " +
			"TO this user")
	}
	return r, err
}
