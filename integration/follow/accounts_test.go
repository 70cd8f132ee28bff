package follow_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	public "github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// followerRights are the privileges that docs/following.md has for followers.
func followerRights(e testkit.Engine, schema string) []string {
	on := func(rights, name string) string {
		return "GRANT " + rights + " ON " + schema + "." + name + " TO USER()"
	}
	const sequence = "uid_follow_events_862417_mark"
	switch e.Name {
	case "postgres":
		return []string{"GRANT USAGE ON SCHEMA " + schema + " TO USER()", on("SELECT", "events"), on("SELECT, UPDATE", `"UID_FOLLOW"`),
			"GRANT USAGE, UPDATE ON SEQUENCE " + schema + "." + sequence + " TO USER()"}
	case "mariadb":
		return append(followerRights(testkit.Engine{Name: "mysql"}, schema), on("SELECT, INSERT", sequence))
	}
	return []string{on("SELECT, TRIGGER", "events"), on("SELECT, UPDATE", "UID_FOLLOW"), on("SELECT, UPDATE", "UID_FOLLOW_GATE")}
}

// consumerRights are the privileges that docs/following.md has for consumers, besides those of followers.
func consumerRights(schema string) string {
	return "GRANT SELECT, INSERT, UPDATE ON " + schema + ".UID_CURSOR TO USER()"
}

// An account is a new user of a database with the privileges of a follower.
type account struct {
	*testkit.Wire
	db   *gorm.DB
	mark *follow.Mark
}

func newAccount(t *testing.T, d *testkit.Database, n int, more ...string) account {
	t.Helper()
	admin := d.Open(t, nil)
	user := fmt.Sprintf("u%d_%s", n, d.Schema)
	create, drop, dsn := "CREATE USER "+user+" IDENTIFIED BY 'r3ad'", "DROP USER "+user, d.DSN()
	if d.Name == "postgres" {
		create, drop = "CREATE USER "+user+" PASSWORD 'r3ad'", "DROP OWNED BY "+user+"; "+drop
		dsn = strings.NewReplacer("user=test", "user="+user, "password=test", "password=r3ad").Replace(dsn)
	} else {
		dsn = user + ":r3ad" + dsn[strings.Index(dsn, "@"):]
	}
	for _, statement := range slices.Concat([]string{create}, followerRights(d.Engine, d.Current()), more) {
		if d.Name == "postgres" {
			statement = strings.ReplaceAll(statement, "UID_CURSOR", `"UID_CURSOR"`)
		}
		testkit.Must(t, admin.Exec(strings.ReplaceAll(statement, "USER()", user)).Error)
	}
	t.Cleanup(func() { testkit.Must(t, admin.Exec(drop).Error) })
	a := account{Wire: &testkit.Wire{}}
	var err error
	a.db, err = a.Connect(d.Engine, dsn)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = testkit.Close(a.db) })
	conn, err := sqldb.Open(a.db, time.Minute)
	testkit.Must(t, err)
	a.mark = follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
	return a
}

// advance publishes a mark above the last one. Ids have milliseconds. It tries again if the connection was lost, because
// a process that stands still for seconds, as on a busy machine, loses it.
func (a account) advance(t *testing.T, above int64) (published int64, err error) {
	t.Helper()
	for range 100 {
		time.Sleep(5 * time.Millisecond)
		published, err = a.mark.Advance(t.Context())
		if err == nil && published > above || err != nil && !harness.Unreachable.MatchString(err.Error()) {
			break
		}
	}
	return published, err
}

var digits = regexp.MustCompile(`\d+`)

// inSchema matches the names of the plugin with their schema.
var inSchema = regexp.MustCompile(`\w+\.(UID_FOLLOW|uid_follow_)`)

// kind returns a statement without its numbers and schema.
func kind(statement string) string {
	return digits.ReplaceAllString(inSchema.ReplaceAllString(unquoted(statement), "$1"), "#")
}

// once matches queries that a process sends once, or once in a minute: for the kind of database, the schema of the
// table, and whether the server takes all writes.
var once = regexp.MustCompile(`(?i)^(SELECT VERSION\(|SELECT CASE WHEN VERSION|SELECT COALESCE\(nspname|SHOW GLOBAL VARIABLES|` +
	`SELECT 'members'|SELECT EXISTS \(SELECT FROM pg_subscription_rel)`)

// statementsOf returns the statements of a round.
func statementsOf(t *testing.T, a account) (list []string) {
	t.Helper()
	_, err := a.advance(t, 0)
	testkit.Must(t, err)
	for _, statement := range a.Take() {
		if !once.MatchString(statement) {
			list = append(list, kind(statement))
		}
	}
	if len(list) < 6 {
		t.Fatalf("a round has only the statements %q", list)
	}
	return list
}

// Each process may have its own account, so none can end the connection of another. A closer that stands still at any
// statement of its round, with the locks that it has then, does not stop the others.
func TestAccounts_ACloserThatStandsStillStopsNobody(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		testkit.Must(t, admin.AutoMigrate(&event{}))
		testkit.Must(t, follow.Enable(t.Context(), connect(t, admin), table))
		a, b := newAccount(t, d, 1), newAccount(t, d, 2)
		for at, statement := range statementsOf(t, a) {
			still, stop := make(chan struct{}), make(chan struct{})
			reached := false
			a.Set(func(c *testkit.Crossing) error {
				err := c.Run()
				if !reached && kind(c.SQL) == statement {
					reached = true
					close(still)
					<-stop
				}
				return err
			})
			ended := make(chan struct{})
			go func() { _, _ = a.advance(t, 0); close(ended) }()
			select {
			case <-still:
			case <-ended:
				t.Errorf("statement %d was not sent: %s", at, statement)
			}
			published := admin.Statement.Quote("PUBLISHED")
			testkit.Must(t, admin.Exec("UPDATE "+admin.Statement.Quote("UID_FOLLOW")+" SET "+admin.Statement.Quote("CLOSER_UNTIL")+" = 0").Error)
			var last int64
			testkit.Must(t, admin.Raw("SELECT "+published+" FROM "+admin.Statement.Quote("UID_FOLLOW")).Scan(&last).Error)
			if got, err := b.advance(t, last); err != nil || got <= last {
				t.Errorf("while another stands still after %s: %d after %d, %v", statement, got, last, err)
			}
			close(stop)
			<-ended
			a.Set(nil)
			testkit.Must(t, admin.Exec("UPDATE "+admin.Statement.Quote("UID_FOLLOW")+" SET "+admin.Statement.Quote("CLOSER_UNTIL")+" = 0").Error)
		}
	}, "mariadb", "mysql", "postgres")
}

// needed matches the statements without which no mark can be published. The others only spare other processes a wait.
var needed = regexp.MustCompile(`^(SET STATEMENT sql_mode = '[A-Z_,]*' FOR )?(SELECT PUBLISHED, |UPDATE UID_FOLLOW |SELECT SETVAL|WITH lock |UPDATE UID_FOLLOW_GATE |` +
	`WITH setting |SELECT ID FROM UID_FOLLOW_GATE .* FOR UPDATE$)`)

// A database may refuse any statement, for want of a privilege or for a reason that we do not know. Only a statement
// that is needed may then stop followers, and they go on when the database accepts it again.
func TestAccounts_OnlyANeededStatementThatFailsStopsFollowers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		testkit.Must(t, admin.AutoMigrate(&event{}))
		testkit.Must(t, follow.Enable(t.Context(), connect(t, admin), table))
		a := newAccount(t, d, 1)
		last, spared := int64(0), 0
		denied := errors.New("denied")
		for _, statement := range append(statementsOf(t, a), "WITH setting ", "UPDATE UID_FOLLOW_GATE ") {
			a.Set(func(c *testkit.Crossing) error {
				if c.Is(statement) || kind(c.SQL) == statement {
					return denied
				}
				return c.Run()
			})
			published, err := a.advance(t, last)
			switch {
			case err == nil && published > last:
				last = published
				if !needed.MatchString(statement) {
					spared++
				}
			case !needed.MatchString(statement) || !errors.Is(err, denied):
				t.Errorf("without %s: %d after %d, %v", statement, published, last, err)
			}
			a.Set(nil)
			if published, err = a.advance(t, last); err != nil || published <= last {
				t.Errorf("with %s again: %d after %d, %v", statement, published, last, err)
			}
			last = published
		}
		if spared == 0 {
			t.Error("no statement was for speed")
		}
	}, "mariadb", "mysql", "postgres")
}

// A told is an event for the plugin.
type told struct {
	ID        uidplugin.ID
	Writer, N int
}

func (told) TableName() string { return "events" }

// A consumer begins its cursor, moves and reads it with three privileges. Operators pause and set it with these, too, and
// remove it with DELETE.
func TestAccounts_AConsumerNeedsThreePrivilegesForItsCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin, ctx := d.Open(t, nil), t.Context()
		testkit.Must(t, admin.AutoMigrate(&event{}))
		testkit.Must(t, follow.Enable(ctx, connect(t, admin), table))
		a := newAccount(t, d, 1, consumerRights(d.Current()))
		q := func(statement string) string {
			return regexp.MustCompile(`[A-Z_]*_[A-Z_]+|CONSUMER|SPACE|HOLDER`).ReplaceAllStringFunc(statement, func(name string) string {
				return a.db.Statement.Quote(name)
			})
		}
		testkit.Must(t, a.db.Exec(q("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID) VALUES ('mails', '', 'events', 0)")).Error)
		moved := a.db.Exec(q("UPDATE UID_CURSOR SET LAST_ID = 5, HOLDER = 'me' WHERE CONSUMER = 'mails' AND SPACE = '' AND TABLE_NAME = 'events' AND LAST_ID = 0"))
		if testkit.Must(t, moved.Error); moved.RowsAffected != 1 {
			t.Errorf("%d rows were moved", moved.RowsAffected)
		}
		conn, key := connect(t, a.db), follow.ConsumerKey{Consumer: "mails", Table: "events"}
		testkit.Must(t, follow.PauseConsumer(ctx, conn, key, true))
		testkit.Must(t, follow.ResetConsumer(ctx, conn, key, 7))
		list, err := follow.ListConsumers(ctx, conn)
		if err != nil || len(list) != 1 || list[0].Last != 7 || !list[0].Paused || list[0].Waiting != 0 || list[0].Unread != nil {
			t.Errorf("%+v, %v", list, err)
		}
		if err := follow.RemoveConsumer(ctx, conn, key); err == nil || errors.Is(err, follow.ErrNoConsumer) {
			t.Errorf("without DELETE: %v", err)
		}
		testkit.Must(t, follow.Enable(ctx, conn, table)) // at each start

		plugintest.Use(t, a.db, uidplugin.WithWorkerID(1))
		id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
		testkit.Must(t, err)
		testkit.Must(t, admin.Create(&event{ID: id}).Error)
		limited, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		handled := false
		err = public.Consume(limited, a.db, "bills", func(_ *gorm.DB, row *told) error {
			handled = int64(row.ID) == id
			stop()
			return nil
		})
		if list, _ := follow.ListConsumers(ctx, conn); !handled || !errors.Is(err, context.Canceled) || len(list) != 2 || list[0].Last != id {
			t.Errorf("the row was handled: %t, %v, %+v", handled, err, list)
		}
	}, "mariadb", "mysql", "postgres")
}

// A process that calls Enable at each start goes on after an update, although it may not create UID_CURSOR.
func TestAccounts_AFollowerNeedsNoCursors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		testkit.Must(t, admin.AutoMigrate(&event{}))
		testkit.Must(t, follow.Enable(t.Context(), connect(t, admin), table))
		testkit.Must(t, admin.Exec("DROP TABLE "+admin.Statement.Quote(follow.CursorTable)).Error)
		a := newAccount(t, d, 1)
		testkit.Must(t, follow.Enable(t.Context(), connect(t, a.db), table))
		_, err := a.advance(t, 0)
		testkit.Must(t, err)
	}, "mariadb", "mysql", "postgres")
}

func unquoted(statement string) string {
	return strings.NewReplacer("`", "", `"`, "").Replace(statement)
}
