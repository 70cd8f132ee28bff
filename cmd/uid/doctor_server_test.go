package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A patient is a database on a server of its own.
type patient struct {
	server, replica *testkit.Server
	db              *gorm.DB
	doctor          runner
}

// A setting of a server is a finding of the doctor.
type setting struct {
	code  string
	spoil func(t *testing.T, p *patient)
	cure  func(t *testing.T, p *patient) // nil: the statement of the finding
	words []string                       // of the finding
}

// globally runs statements that change the settings of the server.
func globally(statements ...string) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		t.Helper()
		exec(statements...)(t, p.db)
	}
}

// mysqlSettings are those of MariaDB and MySQL.
var mysqlSettings = []setting{
	{code: admin.CodeReadOnly, spoil: globally("SET GLOBAL read_only = ON"), words: []string{"read_only is ON", "primary"}},
	{code: admin.CodeInnoDBFlush, spoil: globally("SET GLOBAL innodb_flush_log_at_trx_commit = 2"),
		words: []string{"is 2", "crash of the machine", "configuration"}},
	{code: admin.CodeInnoDBFlush, spoil: globally("SET GLOBAL innodb_flush_log_at_trx_commit = 0"), words: []string{"is 0", "crash of the server"}},
	{code: admin.CodeSyncBinlog, spoil: globally("SET GLOBAL sync_binlog = 0"), words: []string{"is 0", "configuration"}},
	{code: admin.CodeSyncBinlog, spoil: globally("SET GLOBAL sync_binlog = 100"), words: []string{"is 100"}},
}

// A serverKind is a kind of servers, with all that the doctor can find in their settings.
type serverKind struct {
	name, engine string
	options      func(t *testing.T) []string             // of the server
	replicate    func(t *testing.T, p *patient) []string // the options of a replica; nil: there is none
	settings     []setting
}

var serverKinds = []serverKind{
	{
		name: "mariadb", engine: "mariadb", options: binlog,
		replicate: func(*testing.T, *patient) []string { return []string{"--server-id=2"} },
		settings: append(slices.Clone(mysqlSettings), setting{
			code: admin.CodeAsyncReplicas,
			spoil: replicate("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = 'test', " +
				"MASTER_PASSWORD = 'test', MASTER_USE_GTID = slave_pos; START SLAVE"),
			cure: wait("SET GLOBAL rpl_semi_sync_master_enabled = ON",
				"SET GLOBAL rpl_semi_sync_slave_enabled = ON; STOP SLAVE IO_THREAD; START SLAVE IO_THREAD"),
			words: []string{"1 replica connected", "within 12s", "semi-synchronous"},
		}),
	},
	{
		name: "mysql", engine: "mysql", options: binlog,
		replicate: func(*testing.T, *patient) []string { return []string{"--server-id=2"} },
		settings: append(slices.Clone(mysqlSettings), setting{
			code: admin.CodeAsyncReplicas,
			spoil: replicate("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, " +
				"SOURCE_USER = 'test', SOURCE_PASSWORD = 'test', GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"),
			cure: wait("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; "+
				"SET GLOBAL rpl_semi_sync_source_enabled = ON",
				"INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'; "+
					"SET GLOBAL rpl_semi_sync_replica_enabled = ON; STOP REPLICA IO_THREAD; START REPLICA IO_THREAD"),
			words: []string{"1 replica connected", "within 12s", "semi-synchronous"},
		}),
	},
	{
		name: "postgres", engine: "postgres",
		replicate: func(t *testing.T, p *patient) []string {
			primary := slices.DeleteFunc(strings.Fields(p.server.Database().DSN()), func(field string) bool {
				return strings.HasPrefix(field, "dbname=") || strings.HasPrefix(field, "TimeZone=")
			})
			return []string{"-c", "primary_conninfo=" + strings.Join(primary, " ")}
		},
		settings: []setting{
			{code: admin.CodeReadOnly, spoil: globally("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"),
				cure:  globally("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"),
				words: []string{"default_transaction_read_only is on", "ALTER ROLE"}},
			{code: admin.CodeFsync, spoil: globally("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"), words: []string{"crash of the machine"}},
			{code: admin.CodeSynchronousCommit, spoil: globally("ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()"),
				words: []string{"crash of the server", "ALTER ROLE"}},
			{code: admin.CodeSynchronousCommit, spoil: globally("ALTER DATABASE test SET synchronous_commit = off"),
				words: []string{"ALTER DATABASE test RESET", "restart the processes"}},
			{code: admin.CodeSynchronousCommit, spoil: globally("ALTER ROLE test SET synchronous_commit = off"), words: []string{"ALTER ROLE test RESET"}},
			{code: admin.CodeSynchronousCommit, spoil: globally("ALTER ROLE test IN DATABASE test SET synchronous_commit = off"),
				words: []string{"ALTER ROLE test IN DATABASE test RESET"}},
			{code: admin.CodeAsyncReplicas, spoil: func(t *testing.T, p *patient) {
				must(t, os.WriteFile(filepath.Join(p.replica.Dir, "data", "standby.signal"), nil, 0o644))
				p.replica.Run(t, "start")
			},
				words: []string{"1 replica connected", "within 12s"}},
		},
	},
	{
		name: "galera", engine: "mariadb", options: galeraNode,
		settings: []setting{
			{code: admin.CodeSplitBrain, spoil: globally("SET GLOBAL wsrep_provider_options = 'pc.ignore_sb=true'"),
				words: []string{"pc.ignore_sb = true", "all nodes"}},
			{code: admin.CodeSplitBrain, spoil: globally("SET GLOBAL wsrep_provider_options = 'pc.ignore_sb=ON'"), words: []string{"pc.ignore_sb = on"}},
			{code: admin.CodeSplitBrain, spoil: globally("SET GLOBAL wsrep_provider_options = 'pc.ignore_sb=Y'"), words: []string{"pc.ignore_sb = y"}},
			{code: admin.CodeSplitBrain, spoil: globally("SET GLOBAL wsrep_provider_options = 'pc.ignore_quorum=true'"),
				words: []string{"pc.ignore_quorum = true", "all nodes"}},
		},
	},
}

// binlog returns options of a server that replicas can follow, and that loses nothing.
func binlog(*testing.T) []string {
	return []string{"--log-bin=binlog", "--server-id=1", "--sync-binlog=1"}
}

// galeraNode returns the options of a node that is a cluster alone.
func galeraNode(t *testing.T) []string {
	return []string{
		"--wsrep-on=ON", "--wsrep-provider=" + testkit.GaleraProvider(t), "--wsrep-new-cluster",
		"--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1", "--binlog-format=ROW",
		"--innodb-autoinc-lock-mode=2", fmt.Sprintf("--wsrep-provider-options=gcache.size=8M;"+
			"gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d", testkit.FreePort(), testkit.FreePort()),
	}
}

// replicate starts the replica, and has it run statements that name the port of the server.
func replicate(statements string) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		t.Helper()
		p.replica.Run(t, "start")
		source, err := mysql.ParseDSN(p.server.Database().DSN())
		must(t, err)
		_, port, err := net.SplitHostPort(source.Addr)
		must(t, err)
		execEach(t, p.replica.Database().Open(t, nil), fmt.Sprintf(statements, port))
	}
}

// wait lets commits wait for the replica.
func wait(onServer, onReplica string) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		t.Helper()
		execEach(t, p.db, onServer)
		execEach(t, p.replica.Database().Open(t, nil), onReplica)
	}
}

// execEach runs statements as a client does: one after the other.
func execEach(t *testing.T, db *gorm.DB, statements string) {
	t.Helper()
	for statement := range strings.SplitSeq(statements, "; ") {
		must(t, db.Exec(statement).Error)
	}
}

// admit starts the servers of a kind without starting the replica, and creates a healthy database.
func admit(t *testing.T, kind serverKind) *patient {
	t.Helper()
	var options []string
	if kind.options != nil {
		options = kind.options(t)
	}
	at := slices.IndexFunc(testkit.Engines(), func(e testkit.Engine) bool { return e.Name == kind.engine })
	p := &patient{server: testkit.Engines()[at].NewServer(t, options...)}
	if kind.replicate != nil {
		p.server.Run(t, "stop")
		p.replica = p.server.Copy(t, kind.replicate(t, p)...)
		p.server.Run(t, "start")
	}
	d := p.server.Database()
	p.db, p.doctor = d.Open(t, nil), runner{t: t, dsn: dsn(d)}
	shop(t, p.db, "web-1", "first")
	return p
}

// diagnosed waits until the doctor finds exactly these codes, because replicas and settings need a moment.
func (p *patient) diagnosed(t *testing.T, codes ...string) (list []admin.Finding) {
	t.Helper()
	code := exitOK
	if len(codes) > 0 {
		code = exitWrong
	}
	var last result
	defer func() {
		if t.Failed() {
			t.Logf("the doctor says, with exit code %d:\n%s%s", last.code, last.out, last.err)
		}
	}()
	testkit.Eventually(t, fmt.Sprintf("findings %q", codes), time.Minute, func() bool {
		last, list = p.doctor.run("doctor", "--json"), nil
		var got []string
		for line := range strings.Lines(last.out) {
			var f admin.Finding
			must(t, json.Unmarshal([]byte(line), &f))
			list, got = append(list, f), append(got, f.Code)
		}
		return last.code == code && slices.Equal(got, codes)
	})
	return list
}

// On a server of its own, each setting leads to its finding, and to no other. The statement that the doctor prints, or
// the test's cure where it prints none, ends the finding. Without such a setting the server has no finding.
func TestDoctor_FindsEachSettingOfAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts servers")
	}
	t.Parallel()
	for _, kind := range serverKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			p := admit(t, kind)
			p.diagnosed(t)
			for _, s := range kind.settings {
				s.spoil(t, p)
				f := p.diagnosed(t, s.code)[0]
				testkit.SaysAll(t, f.Text+f.Advice+f.Fix, s.words...)
				if s.code == admin.CodeReadOnly { // an outage in which statements that only read succeed
					p.doctor.run("status").want(t, exitWrong, admin.CodeReadOnly)
				}
				if s.cure == nil {
					must(t, p.db.Exec(f.Fix).Error)
					if strings.Contains(f.Advice, "SELECT pg_reload_conf()") {
						must(t, p.db.Exec("SELECT pg_reload_conf()").Error)
					}
				} else {
					s.cure(t, p)
				}
				p.diagnosed(t)
			}
		})
	}
}
