package follow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// follows returns the error with which a process begins to follow a table.
func follows(t *testing.T, conn *sqldb.DB, table follow.Table) error {
	t.Helper()
	_, err := follow.NewMark(conn, table, generator.DefaultLayout(), time.Now).Advance(t.Context())
	return err
}

// Logical replication inserts rows without the trigger, so rows of a subscriber could be missed. A table may become its
// target after follow.Enable, and the subscription may name a partition. In a region followers leave out such rows.
func TestFollow_RefusesTheTargetOfASubscription(t *testing.T) {
	t.Parallel()
	server := testkit.Engine{Name: "postgres", Variable: "UID_TEST_POSTGRES"}.NewServer(t, "-c", "wal_level=logical")
	d := server.New(t)
	db := d.Open(t, nil)
	testkit.Must(t, db.Exec("CREATE DATABASE publisher").Error)
	publisher := strings.Replace((&testkit.Database{Engine: d.Engine}).DSN(), "dbname=test", "dbname=publisher", 1)
	from, err := gorm.Open(d.Dialector(publisher), &gorm.Config{Logger: logger.Discard})
	testkit.Must(t, err)
	defer func() { _ = testkit.Close(from) }()
	creates := []string{
		"CREATE TABLE whole (id BIGINT PRIMARY KEY)",
		"CREATE TABLE parts (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id)",
		"CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9000000000000000000)",
	}
	for _, statement := range creates {
		testkit.Must(t, db.Exec(statement).Error)
		testkit.Must(t, from.Exec(statement).Error)
	}
	conn := connect(t, db)
	tables := []follow.Table{{Name: "whole", Key: "id", Slack: time.Second}, {Name: "parts", Key: "id", Slack: time.Second}}
	for _, table := range tables {
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		testkit.Must(t, follows(t, conn, table))
	}
	testkit.Must(t, from.Exec("CREATE PUBLICATION p FOR ALL TABLES").Error)
	testkit.Must(t, from.Exec("SELECT pg_create_logical_replication_slot('s', 'pgoutput')").Error)
	testkit.Must(t, db.Exec("CREATE SUBSCRIPTION s CONNECTION '"+strings.Replace(publisher, " TimeZone=UTC", "", 1)+
		"' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)").Error)
	for _, table := range tables {
		for what, err := range map[string]error{"Follow": follows(t, conn, table), "Enable": follow.Enable(t.Context(), conn, table)} {
			if !errors.Is(err, follow.ErrReplicated) || !strings.Contains(err.Error(), "pg_subscription_rel") {
				t.Errorf("%s of %s: %v", what, table.Name, err)
			}
		}
		s, ok, err := follow.StatusOf(t.Context(), conn, generator.DefaultLayout(), table.Name)
		if err != nil || !ok || !errors.Is(s.Refused, follow.ErrReplicated) {
			t.Errorf("the status of %s: %+v, %v", table.Name, s, err)
		}
		table.Regional = true
		testkit.Must(t, follows(t, conn, table))
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
	}
	testkit.Must(t, db.Exec("DROP SUBSCRIPTION s").Error)
	for _, table := range tables {
		testkit.Must(t, follows(t, conn, table))
	}
}

// A server that has become a replica does not take writes. An account with SUPER can write to it nevertheless.
func TestFollow_RefusesAReadOnlyServer(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines() {
		if !e.IsMySQL() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := e.NewServer(t).New(t)
			db := d.Open(t, nil)
			testkit.Must(t, db.AutoMigrate(&event{}))
			conn := connect(t, db)
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			testkit.Must(t, follows(t, conn, table))
			testkit.Must(t, db.Exec("SET GLOBAL read_only = ON").Error)
			testkit.IsError(t, follows(t, conn, table), follow.ErrRefused, "read_only is ON", "primary")
			testkit.IsError(t, follow.Enable(t.Context(), conn, table), follow.ErrRefused, "read_only is ON", "primary")
			testkit.Must(t, db.Exec("SET GLOBAL read_only = OFF").Error)
			testkit.Must(t, follows(t, conn, table))
		})
	}
}

// A server can join a group with several primaries while its connections stay open. Rows that come through another
// primary do not pass the gates.
func TestFollow_RefusesAGroupWithSeveralPrimaries(t *testing.T) {
	t.Parallel()
	e := testkit.Engine{Name: "mysql", Variable: "UID_TEST_MYSQL"}
	d := e.NewServer(t, "--performance-schema=ON", "--log-bin=bin", "--server-id=1", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--plugin-load-add=group_replication.so", "--loose-group-replication-group-name=aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
		"--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-start-on-boot=OFF",
		fmt.Sprintf("--loose-group-replication-local-address=127.0.0.1:%d", testkit.FreePort())).New(t)
	db := d.Open(t, nil)
	testkit.Must(t, db.AutoMigrate(&event{}))
	conn := connect(t, db)
	testkit.Must(t, follow.Enable(t.Context(), conn, table)) // it is not in the group yet
	testkit.Must(t, follows(t, conn, table))
	plain := connect(t, as(t, d, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, TRIGGER ON "+d.Schema+".* TO USER()"))
	testkit.IsError(t, follows(t, plain, table), follow.ErrRefused, "GRANT SELECT ON performance_schema.replication_group_members")

	testkit.Must(t, db.Exec("SET GLOBAL group_replication_bootstrap_group = ON").Error)
	testkit.Must(t, db.Exec("START GROUP_REPLICATION").Error)
	defer func() {
		testkit.Must(t, db.Exec("STOP GROUP_REPLICATION").Error)
		testkit.Must(t, db.Exec("SET GLOBAL read_only = OFF").Error) // leaving the group has set it
	}()
	for what, err := range map[string]error{"Follow": follows(t, conn, table), "Enable": follow.Enable(t.Context(), conn, table)} {
		if !errors.Is(err, follow.ErrRefused) || !strings.Contains(err.Error(), "a replication group with several primaries") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The statements of a migration install the trigger on a node of Galera, too, without a check.
func TestFollow_RefusesANodeOfGalera(t *testing.T) {
	t.Parallel()
	e := testkit.MariaDB()
	e.Need(t)
	d := e.NewServer(t, "--binlog-format=ROW", "--wsrep-provider="+testkit.GaleraProvider(t), "--wsrep-on=ON", "--wsrep-new-cluster",
		"--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1", "--innodb-autoinc-lock-mode=2",
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;gcache.size=8M", testkit.FreePort())).New(t)
	db := d.Open(t, nil)
	testkit.Must(t, db.AutoMigrate(&event{}))
	conn := connect(t, db)
	for _, statement := range follow.MariaDB.Install(table) {
		testkit.Must(t, conn.ExecRaw(t.Context(), statement))
	}
	testkit.IsError(t, follows(t, conn, table), follow.ErrRefused, "Galera")
	testkit.IsError(t, follow.Enable(t.Context(), conn, table), follow.ErrRefused, "Galera")
}
