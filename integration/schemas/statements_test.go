package schemas_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
)

var (
	ownName = regexp.MustCompile(`(^|[^A-Za-z_])(WORKER_(NODE|SLOT|SESSION|REGISTRY)|UID_FOLLOW(_GATE)?|UID_CURSOR|leaf_alloc|uid_follow_letters_\w+)\b`)

	// What follows is not looked up by the server: texts, comments, and names of triggers, which are those of a table.
	text    = regexp.MustCompile(`'[^']*'|--[^\n]*`)
	trigger = regexp.MustCompile(`TRIGGER (IF EXISTS )?uid_follow_letters_\w+ (AFTER|ON)`)
	index   = regexp.MustCompile(`^CREATE INDEX IF NOT EXISTS main\..* ON WORKER_NODE`)
)

// bare returns the names of the plugin's tables in a statement that have no schema.
func bare(d *testkit.Database, statement string) (names []string) {
	statement = text.ReplaceAllStringFunc(statement, func(s string) string {
		if strings.HasPrefix(s, "'"+d.Current()+".") || strings.HasPrefix(s, "'.") { // a name in a text
			return s
		}
		return "''"
	})
	switch {
	case d.Name == "postgres":
		statement = trigger.ReplaceAllString(statement, "TRIGGER")
	case d.Name == "sqlite" && (index.MatchString(statement) || strings.HasPrefix(statement, "CREATE TRIGGER") ||
		strings.HasPrefix(statement, "CREATE VIEW") || strings.Contains(statement, "UID_FOLLOW") || strings.Contains(statement, "UID_CURSOR") ||
		strings.HasPrefix(statement, "DROP TRIGGER")):
		return nil // they are in the schema of their object; UID_FOLLOW and UID_CURSOR are in that of the table, and a file has no other schema
	case d.IsMySQL() && strings.HasPrefix(statement, "CREATE FUNCTION"), d.IsMySQL() && strings.HasPrefix(statement, "CREATE TRIGGER"):
		statement, _, _ = strings.Cut(statement, "\n") // names in the body are those of its database
	}
	for _, found := range ownName.FindAllStringSubmatchIndex(statement, -1) {
		if before := statement[:found[4]]; !strings.HasSuffix(before, d.Current()+".") && !strings.HasSuffix(before, "'.") {
			names = append(names, statement[found[4]:found[5]])
		}
	}
	return names
}

// All statements of the library about its own tables name their schema, so it does not matter which one is current.
func TestStatements_NameTheSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		ctx := t.Context()
		p := harness.Use(t, db, uidplugin.WithModels(&letter{}, &ticket{}), uidplugin.WithLead(300*time.Millisecond))
		testkit.Must(t, p.AutoMigrate(&letter{}, &ticket{}))
		testkit.Must(t, follow.Enable(ctx, db, &letter{}, follow.WithSlack(50*time.Millisecond)))
		testkit.Must(t, follow.Enable(ctx, db, &letter{}, follow.WithSlack(time.Second)))
		row := letter{}
		testkit.Must(t, db.Create(&row).Error)
		testkit.Must(t, db.Create(&ticket{}).Error)
		_, err := p.Locate(ctx, row.ID)
		testkit.Must(t, err)
		_, err = p.Find(ctx, row.ID)
		testkit.Must(t, err)
		_, err = follow.Settled(ctx, db, &letter{})
		testkit.Must(t, err)
		for _, err := range follow.Rows[letter](ctx, db, row.ID-1) {
			testkit.Must(t, err)
			break
		}
		testkit.Must(t, migrations.CreateFunctions(ctx, db))
		testkit.Must(t, migrations.Check(ctx, db))
		a, err := admin.Connect(db, time.Minute, time.Now)
		testkit.Must(t, err)
		testkit.Must(t, a.ReadRegistry(ctx))
		a.Examine(ctx)
		_, err = a.Followed(ctx, "")
		testkit.Must(t, err)
		_, err = a.Prune(ctx, time.Now())
		testkit.Must(t, err)
		testkit.Must(t, a.ResetFollow(ctx, "letters"))
		testkit.Must(t, follow.Disable(ctx, db, &letter{}))
		testkit.Eventually(t, "a renewal", time.Minute, func() bool { return p.Stats().Slot.Renewals > 2 })
		testkit.Must(t, p.Close(ctx))
		ours := 0
		for _, statement := range wire.Take() {
			if ownName.MatchString(statement) {
				ours++
			}
			if names := bare(d, statement); len(names) > 0 {
				t.Errorf("%q without a schema in %s", names, statement)
			}
		}
		if ours < 40 {
			t.Errorf("only %d statements were seen", ours)
		}
	})
}
