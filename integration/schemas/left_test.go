package schemas_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// connections is the size of the pool whose connections are left elsewhere.
const connections = 4

// leave sets another schema, or database, on some of the pool's connections, and the own one on the others, as an
// application with a schema for each tenant does.
func leave(ctx context.Context, d *testkit.Database, pool *sql.DB, elsewhere string) error {
	var held []*sql.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range 1 + rand.N(connections-1) {
		c, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		held = append(held, c)
		own := d.Current()
		if rand.N(3) > 0 {
			own = elsewhere
		}
		set := "USE " + own
		if d.Name == "postgres" {
			set = "SET search_path TO " + own
		}
		if _, err := c.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// Applications with a schema, or a database, for each tenant leave the last tenant's on the connections of their pool.
// Formerly renewals failed then, ids could not be located, and followers stopped.
func TestConnections_MayBeLeftInAnotherSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		elsewhere := d.Beside(t)
		j := &testkit.Log{}
		db, p := started(t, d, "", uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&letter{}, &ticket{}), uidplugin.WithLead(300*time.Millisecond),
			uidplugin.WithSegments(segment.Config{Step: 5, MaxStep: 5}))
		testkit.Must(t, db.AutoMigrate(&letter{}, &ticket{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &letter{}, follow.WithSlack(50*time.Millisecond)))
		writer := d.Open(t, nil) // its connections stay where they are
		testkit.Must(t, writer.Exec("CREATE TABLE "+elsewhere+".letters (id BIGINT PRIMARY KEY, town TEXT)").Error)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(connections)
		pool.SetMaxIdleConns(connections)

		ctx, stop := context.WithCancel(t.Context())
		var leaving sync.WaitGroup
		leaving.Go(func() {
			for ctx.Err() == nil {
				if err := leave(ctx, d, pool, elsewhere); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		defer leaving.Wait()
		defer stop()
		renewals := p.Stats().Slot.Renewals
		ledger, first := testkit.NewLedger(t), uidplugin.ID(0)
		const rows = 40
		for range rows {
			id := addLetter(t, p, writer, elsewhere)
			if first == 0 {
				first = id
			}
			ledger.Add("letters", int64(id))
			if l, err := p.Locate(t.Context(), id); err != nil || l.Table != "letters" || l.Session.Port == "" {
				t.Fatalf("Locate: %+v, %v", l, err)
			}
			n, err := p.NextID(t.Context(), &ticket{})
			testkit.Must(t, err)
			ledger.Add("tickets", int64(n))
			time.Sleep(20 * time.Millisecond) // for some renewals
		}
		followAll(t, db, rows, int64(first))
		if _, err := follow.Settled(t.Context(), db, &letter{}); err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, "health", time.Minute, func() bool { return p.Health() == nil })
		if s := p.Stats().Slot; s.Renewals <= renewals || s.Lost > 0 {
			t.Errorf("%+v", s)
		}
		for _, line := range j.Lines("error=") {
			if !strings.Contains(line, "deadline exceeded") { // a statement that takes too long on a busy machine
				t.Error(line)
			}
		}
		stop()
		leaving.Wait()
		// The next table and the end of the process need new statements.
		harness.Close(t, p)
	}, "mariadb", "mysql", "postgres")
}

// addLetter inserts a letter, and another one with its id into the other schema.
func addLetter(t *testing.T, p *uidplugin.Plugin, writer *gorm.DB, elsewhere string) uidplugin.ID {
	t.Helper()
	for try := 0; ; try++ {
		id, err := p.NextID(t.Context(), &letter{})
		testkit.Must(t, err)
		err = writer.Exec("INSERT INTO letters (id, town) VALUES (?, 'here')", id).Error
		if err != nil && try < 500 {
			continue // it came too late, because the machine is busy
		}
		testkit.Must(t, err)
		testkit.Must(t, writer.Exec("INSERT INTO "+elsewhere+".letters (id, town) VALUES (?, 'elsewhere')", id).Error)
		return id
	}
}

// followAll follows from before the first row to the last one.
func followAll(t *testing.T, db *gorm.DB, rows int, first int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n := 0
	for row, err := range follow.Rows[letter](ctx, db, uidplugin.ID(first-1)) {
		testkit.Must(t, err)
		if row.Town != "here" {
			t.Fatalf("row %d is from another schema", row.ID)
		}
		if n++; n == rows {
			return
		}
	}
	t.Errorf("%d rows", n)
}

// The triggers find their tables whatever schema the connection that inserts has.
func TestTrigger_OfAnInsertFromAnotherSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, p := started(t, d, "", uidplugin.WithModels(&letter{}))
		testkit.Must(t, db.AutoMigrate(&letter{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &letter{}, follow.WithSlack(time.Second)))
		other := d.Elsewhere(t).Open(t, nil)
		table := d.Current() + ".letters"
		id, err := p.NextID(t.Context(), &letter{})
		testkit.Must(t, err)
		testkit.Must(t, other.Exec("INSERT INTO "+table+" (id, town) VALUES (?, 'x')", id).Error)
		settled, err := follow.Settled(t.Context(), db, &letter{})
		testkit.Must(t, err)
		if err := other.Exec("INSERT INTO "+table+" (id, town) VALUES (?, 'late')", settled-1).Error; err == nil {
			t.Error("a row below the mark was accepted")
		}
		// The closer takes the user-level lock under the name that the trigger computes.
		if d.IsMySQL() {
			var same bool
			testkit.Must(t, d.Open(t, nil).Raw("SELECT COUNT(*) = 1 FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = ?"+
				" AND ACTION_STATEMENT LIKE '%DATABASE()%' AND ACTION_STATEMENT NOT LIKE ?", d.Schema, "%"+d.Schema+"%").Scan(&same).Error)
			if !same {
				t.Error("the trigger names its database, so a dump could not be restored under another name")
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// receipt names its schema in the model, as some applications do.
type receipt struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// A table has one counter, whether its name has the schema or not, and whatever schema the connection has on which the
// segment is opened. Formerly the name of the counter depended on it.
func TestSegment_OpenedOnAConnectionThatWasLeftElsewhere(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		elsewhere := d.Beside(t)
		db := d.Open(t, &gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: d.Current() + "."}})
		p := harness.Use(t, db)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		set := "USE " + elsewhere
		if d.Name == "postgres" {
			set = "SET search_path TO " + elsewhere
		}
		testkit.Must(t, db.Exec(set).Error)
		_, err = p.NextID(t.Context(), &receipt{})
		testkit.Must(t, err)
		var tags []string
		testkit.Must(t, d.Open(t, nil).Raw("SELECT biz_tag FROM leaf_alloc").Scan(&tags).Error)
		if len(tags) != 1 || tags[0] != "receipts" {
			t.Errorf("the tags are %q", tags)
		}
	}, "mariadb", "mysql", "postgres")
}
