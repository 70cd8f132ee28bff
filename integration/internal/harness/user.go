package harness

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A User is a user of MySQL, MariaDB or PostgreSQL with the rights that a test grants.
type User struct {
	t     *testing.T
	d     *testkit.Database
	admin *gorm.DB
	name  string
}

// NewUser creates a user without rights on tables, and drops it when the test ends.
func NewUser(t *testing.T, d *testkit.Database) *User {
	t.Helper()
	u := &User{t, d, d.Open(t, nil), strings.ReplaceAll(d.Schema, "t", "u")}
	send := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			testkit.Must(t, u.admin.Exec(s).Error)
		}
	}
	if d.IsMySQL() {
		send("CREATE USER " + u.name + "@'%' IDENTIFIED BY 'secret'")
		t.Cleanup(func() { send("DROP USER " + u.name + "@'%'") })
	} else {
		send("CREATE ROLE "+u.name+" LOGIN PASSWORD 'secret'", "GRANT USAGE ON SCHEMA "+d.Current()+" TO "+u.name)
		t.Cleanup(func() { send("DROP OWNED BY "+u.name, "DROP ROLE "+u.name) })
	}
	return u
}

// Grant grants rights on tables. Without tables it grants them on the whole database, but on PostgreSQL only on the
// tables that exist now.
func (u *User) Grant(rights string, tables ...string) {
	u.t.Helper()
	u.change("GRANT", rights, "TO", tables)
}

// Revoke revokes rights on tables.
func (u *User) Revoke(rights string, tables ...string) {
	u.t.Helper()
	u.change("REVOKE", rights, "FROM", tables)
}

func (u *User) change(verb, rights, preposition string, tables []string) {
	u.t.Helper()
	user := u.name
	on := []string{"ALL TABLES IN SCHEMA " + u.d.Current()}
	if u.d.IsMySQL() {
		user, on = u.name+"@'%'", []string{u.d.Schema + ".*"}
	}
	if len(tables) > 0 {
		on = nil
	}
	for _, table := range tables {
		if u.d.IsMySQL() {
			on = append(on, u.d.Schema+"."+table)
		} else {
			on = append(on, `"`+table+`"`)
		}
	}
	for _, o := range on {
		testkit.Must(u.t, u.admin.Exec(verb+" "+rights+" ON "+o+" "+preposition+" "+user).Error)
	}
}

// Open returns a handle of the user, and closes its pool when the test ends.
func (u *User) Open() *gorm.DB {
	u.t.Helper()
	dsn := strings.Replace(u.d.DSN(), "test:test@", u.name+":secret@", 1)
	if u.d.Name == "postgres" {
		dsn = u.d.DSN("user="+u.name, "password=secret")
	}
	db, err := gorm.Open(u.d.Dialector(dsn), &gorm.Config{Logger: logger.Discard})
	testkit.Must(u.t, err)
	u.t.Cleanup(func() { _ = testkit.Close(db) })
	return db
}
