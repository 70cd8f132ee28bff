package follow_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
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

// connect returns a connection for [follow.Enable].
func connect(t *testing.T, db *gorm.DB) *sqldb.DB {
	t.Helper()
	conn, err := sqldb.Open(db, time.Minute)
	testkit.Must(t, err)
	return conn
}

// as returns a handle of a new user with the given privileges.
func as(t *testing.T, d *testkit.Database, grants ...string) *gorm.DB {
	t.Helper()
	admin := d.Open(t, nil)
	user := "u" + d.Schema
	for _, statement := range append([]string{"CREATE USER " + user + " IDENTIFIED BY 'r3ad'"}, grants...) {
		testkit.Must(t, admin.Exec(strings.ReplaceAll(statement, "USER()", user)).Error)
	}
	t.Cleanup(func() { testkit.Must(t, admin.Exec("DROP USER "+user).Error) })
	dsn := d.DSN()
	db, err := gorm.Open(d.Dialector(user+":r3ad"+dsn[strings.Index(dsn, "@"):]), &gorm.Config{Logger: logger.Discard})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = testkit.Close(db) })
	return db
}

var table = follow.Table{Name: "events", Key: "id", Slack: time.Second}

// A user without SUPER learns how a trigger can be created, and one without PROCESS that he cannot see transactions.
func TestOperator_LearnsWhichPrivilegesAreMissing(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines() {
		if !e.IsMySQL() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			server := e.NewServer(t, "--performance-schema=ON", "--log-bin=bin", "--server-id=1", "--binlog-format=ROW")
			d := server.New(t)
			db := d.Open(t, nil)
			testkit.Must(t, db.AutoMigrate(&event{}))
			plain := as(t, d, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, TRIGGER ON "+d.Schema+".* TO USER()")
			conn := connect(t, plain)
			err := follow.Enable(t.Context(), conn, table)
			if err == nil || errors.Is(err, follow.ErrRefused) || !strings.Contains(err.Error(), "needs SUPER or log_bin_trust_function_creators") {
				t.Errorf("without SUPER: %v", err)
			}
			testkit.Must(t, db.Exec("SET GLOBAL log_bin_trust_function_creators = 1").Error)
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			list, err := follow.List(t.Context(), conn, generator.DefaultLayout())
			if err != nil || len(list) != 1 || list[0].Unread == nil || !strings.Contains(list[0].Unread.Error(), "it needs ") || list[0].Raised != 1 {
				t.Errorf("without PROCESS: %+v, %v", list, err)
			}

			conn = connect(t, db)
			if !seesHolder(t, db, conn) {
				t.Error("the transaction that holds the mark is not listed")
			}

			testkit.Must(t, db.Exec("SET GLOBAL binlog_format = 'STATEMENT'").Error)
			err = follow.Enable(t.Context(), conn, table)
			if !errors.Is(err, follow.ErrRefused) || !strings.Contains(err.Error(), "GLOBAL.binlog_format is STATEMENT") {
				t.Errorf("with STATEMENT: %v", err)
			}
		})
	}
}

// seesHolder reports whether the list has a transaction that holds the mark.
func seesHolder(t *testing.T, db *gorm.DB, conn *sqldb.DB) bool {
	t.Helper()
	tx := db.Begin()
	defer tx.Rollback()
	id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
	testkit.Must(t, err)
	testkit.Must(t, tx.Create(&event{ID: id}).Error)
	var session int64
	testkit.Must(t, tx.Raw("SELECT CONNECTION_ID()").Scan(&session).Error)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = follow.NewMark(conn, table, generator.DefaultLayout(), time.Now).Advance(ctx)
	}()
	defer func() { stop(); <-ended }()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(300 * time.Millisecond) {
		list, err := follow.List(t.Context(), conn, generator.DefaultLayout())
		if err != nil || len(list) != 1 || list[0].Unread != nil {
			t.Fatalf("%+v, %v", list, err)
		}
		if slices.ContainsFunc(list[0].Holders, func(h follow.Holder) bool {
			return h.Session == session && h.User == "test" && time.Since(h.Since).Abs() < time.Minute
		}) {
			return true
		}
	}
	return false
}

// A prepared transaction has no session, and holds the mark until somebody ends it.
func TestOperator_SeesAPreparedTransaction(t *testing.T) {
	t.Parallel()
	e := testkit.Engine{Name: "postgres", Variable: "UID_TEST_POSTGRES"}
	db := e.NewServer(t, "-c", "max_prepared_transactions=4").New(t).Open(t, nil)
	testkit.Must(t, db.AutoMigrate(&event{}))
	conn := connect(t, db)
	testkit.Must(t, follow.Enable(t.Context(), conn, table))
	id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
	testkit.Must(t, err)
	testkit.Must(t, db.Connection(func(tx *gorm.DB) error {
		insert := "INSERT INTO events (id) VALUES (" + strconv.FormatInt(id, 10) + ")"
		for _, statement := range []string{"BEGIN", insert, "PREPARE TRANSACTION 'left'"} {
			if err := tx.Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	}))
	list, err := follow.List(t.Context(), conn, generator.DefaultLayout())
	if err != nil || len(list) != 1 || len(list[0].Holders) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if h := list[0].Holders[0]; h.Prepared != "left" || h.Session != 0 || h.User != "test" || time.Since(h.Since).Abs() > time.Minute {
		t.Errorf("%+v", h)
	}
	testkit.Must(t, db.Exec("ROLLBACK PREPARED 'left'").Error)
}

// The trigger has stayed with a renamed table that this account may not see. The error names the trigger, because
// somebody else has to drop it.
func TestOperator_LearnsWhereTheTriggerIs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		testkit.Must(t, follow.Enable(t.Context(), connect(t, db), table))
		for _, statement := range []string{"CREATE TABLE events_new LIKE events", "RENAME TABLE events TO events_old, events_new TO events"} {
			testkit.Must(t, db.Exec(statement).Error)
		}
		grants := []string{"GRANT SELECT, CREATE ON " + d.Schema + ".* TO USER()"}
		for _, name := range []string{"events", "UID_FOLLOW", "UID_FOLLOW_GATE"} {
			grants = append(grants, "GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON "+d.Schema+"."+name+" TO USER()")
		}
		if d.Name == "mariadb" {
			grants = append(grants, "GRANT SELECT, INSERT ON "+d.Schema+".uid_follow_events_862417_mark TO USER()")
		}
		err := follow.Enable(t.Context(), connect(t, as(t, d, grants...)), table)
		testkit.IsError(t, err, follow.ErrNotEnabled, "another table has the trigger uid_follow_events_862417", "1359")
		testkit.Must(t, follow.Enable(t.Context(), connect(t, db), table)) // by somebody who may
	}, "mariadb", "mysql")
}

// A trigger runs with the rights of the account that created it. Without this account all rows are refused, for example
// after a dump was restored on another server, or an account was removed.
func TestOperator_ReplacesATriggerWhoseAccountIsGone(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, restored := range []bool{false, true} {
			db := d.Open(t, nil)
			testkit.Must(t, db.AutoMigrate(&event{}))
			conn, gone := connect(t, db), "g"+d.Schema
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			before := testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now))
			row := map[string]any{}
			testkit.Must(t, db.Raw("SHOW CREATE TRIGGER uid_follow_events_862417").Scan(&row).Error)
			text, ok := row["SQL Original Statement"].(string)
			if !ok {
				t.Fatal(row)
			}
			time.Sleep(20 * time.Millisecond) // CREATED has hundredths of a second
			for _, statement := range []string{
				"DROP TRIGGER uid_follow_events_862417",
				regexp.MustCompile("DEFINER=`[^`]*`@`[^`]*`").ReplaceAllString(text, "DEFINER=`"+gone+"`@`%`"),
			} {
				testkit.Must(t, db.Exec(statement).Error)
			}
			if !restored { // as if the account had created it
				testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET TRIGGER_ID = (SELECT CAST(UNIX_TIMESTAMP(CREATED) AS CHAR)"+
					" FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE())").Error)
			}
			id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
			testkit.Must(t, err)
			insert := func() error { return db.Create(&event{ID: id}).Error }
			if err := insert(); err == nil || !strings.Contains(err.Error(), "Error 1449") {
				t.Fatal(err)
			}
			s, _, err := follow.StatusOf(t.Context(), conn, generator.DefaultLayout(), "events")
			if err != nil || s.Broken == nil || !strings.Contains(s.Broken.Error(), gone) {
				t.Errorf("%+v, %v", s, err)
			}
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			testkit.Must(t, insert())
			s, _, err = follow.StatusOf(t.Context(), conn, generator.DefaultLayout(), "events")
			if err != nil || s.Broken != nil || s.Raised < before {
				t.Errorf("%+v, %v", s, err)
			}
			testkit.Must(t, follow.Disable(t.Context(), conn, table))
			testkit.Must(t, db.Exec("DELETE FROM events").Error)
		}
	}, "mysql", "mariadb")
}
