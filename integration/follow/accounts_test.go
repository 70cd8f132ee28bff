package follow_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
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

// An account is a new user of a database with the privileges of a follower.
type account struct {
	*testkit.Wire
	db   *gorm.DB
	mark *follow.Mark
}

func newAccount(t *testing.T, d *testkit.Database, n int) account {
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
	for _, statement := range append([]string{create}, followerRights(d.Engine, d.Current())...) {
		testkit.Must(t, admin.Exec(strings.ReplaceAll(statement, "USER()", user)).Error)
	}
	t.Cleanup(func() { testkit.Must(t, admin.Exec(drop).Error) })
	a := account{Wire: &testkit.Wire{}}
	var err error
	a.db, err = a.Connect(d.Engine, dsn)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = testkit.Close(a.db) })
	conn, err := sqldb.Open(a.db, 5*time.Second)
	testkit.Must(t, err)
	a.mark = follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
	return a
}

// advance publishes a mark above the last one. Ids have milliseconds.
func (a account) advance(t *testing.T, above int64) (published int64, err error) {
	t.Helper()
	for try := 0; try < 100 && err == nil && published <= above; try++ {
		time.Sleep(5 * time.Millisecond)
		published, err = a.mark.Advance(t.Context())
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

// once matches what a process asks at the first time only, or once in a minute: the kind of database, the schema of the
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

// needed matches the statements without which no mark can be published. The others only spare somebody a wait.
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

func unquoted(statement string) string {
	return strings.NewReplacer("`", "", `"`, "").Replace(statement)
}
