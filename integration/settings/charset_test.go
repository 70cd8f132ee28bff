package settings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A parcel has a table with a Chinese name where the character sets allow it.
type parcel struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Size int
}

// hosts are names of applications, hosts and ports.
var hosts = []string{"订单服务", "orders-😀", "Bücher", strings.Repeat("订", 100), strings.Repeat("a", 300), "nul\x00 and\nline", "\xff"}

// A process starts with any name, in a database of any character set, because these names are only for people. The next
// start with the name gets the slot back, no other name does, and ids resolve to tables and hosts.
func TestNames_StartInEachCharacterSet(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, set := range setsOf(d) {
			t.Run(set.name, func(t *testing.T) {
				t.Parallel()
				set.d = set.create(t)
				clock, slots := testkit.NewClock(time.Now()), map[int64]string{}
				names := hosts
				if set.other {
					names = hosts[:2]
				}
				for _, name := range names {
					first := set.start(t, clock, name)
					if before := slots[first]; before != "" {
						t.Errorf("%.20q and %.20q have one slot", name, before)
					}
					slots[first] = name
					if second := set.start(t, clock, name); second != first {
						t.Errorf("%.20q: the second start has slot %d, the first had %d", name, second, first)
					}
				}
				db, readable := set.d.Open(t, nil, set.params...), false
				for _, s := range harness.Slots(t, db) {
					readable = readable || s.Application == hosts[0]
				}
				if readable != set.readable {
					t.Errorf("a Chinese name is stored as it is: %t", readable)
				}
			})
		}
	})
}

// A charset is that of a database and of its connections.
type charset struct {
	name     string
	create   func(t *testing.T) *testkit.Database
	params   []string // of connections
	prefix   string   // of the table of parcel
	readable bool     // Chinese names are stored as they are
	other    bool     // the connections have another character set than the database

	d *testkit.Database
}

// start begins a process, makes an id, locates it, and ends the process. It returns the slot.
func (c *charset) start(t *testing.T, clock *testkit.Clock, name string) int64 {
	t.Helper()
	db := c.d.Open(t, &gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: c.prefix}}, c.params...)
	p := uidplugin.New(harness.Quiet, uidplugin.WithClock(clock.Now),
		uidplugin.WithHost(workernode.Host{Application: name, Name: name, Port: name}))
	if err := db.Use(p); err != nil {
		t.Fatalf("%.20q: %v", name, err)
	}
	// GORM's migrator needs UTF-8 on PostgreSQL, and refuses a Chinese table that exists on SQLite.
	testkit.Must(t, db.Exec("CREATE TABLE IF NOT EXISTS "+db.Statement.Quote(c.prefix+"parcels")+" (id BIGINT PRIMARY KEY, size BIGINT)").Error)
	row := parcel{Size: 1}
	if err := db.Create(&row).Error; err != nil {
		t.Fatalf("%.20q: %v", name, err)
	}
	where, err := p.Locate(t.Context(), row.ID)
	if err != nil || where.Table != c.prefix+"parcels" || where.Session.Host == "" || where.Session.Host != where.Session.Application {
		t.Errorf("%.20q: Locate(%d) = %+v, %v; want the table %sparcels", name, row.ID, where, err, c.prefix)
	}
	slot := p.Stats().Slot.ID
	harness.Close(t, p)
	testkit.Must(t, testkit.Close(db))
	clock.Add(2 * time.Hour)
	return slot
}

func setsOf(d *testkit.Database) (sets []*charset) {
	const chinese = "订单"
	add := func(create func(t *testing.T) *testkit.Database, name, prefix string, readable bool, params ...string) {
		sets = append(sets, &charset{name: name, create: create, params: params, prefix: prefix, readable: readable,
			other: strings.Contains(name, "connections")})
	}
	switch d.Name {
	case "sqlite":
		add(func(t *testing.T) *testkit.Database { return d.New(t) }, "sqlite", chinese, true)
	case "postgres":
		for name, prefix := range map[string]string{"UTF8": chinese, "LATIN1": "", "SQL_ASCII": chinese} {
			clients := []string{"LATIN1", "UTF8"}
			if !slices.Contains(clients, name) {
				clients = append(clients, name)
			}
			for _, client := range clients {
				database := strings.ToLower(d.Schema + "_" + name + "_" + client)
				table := prefix
				if client == "LATIN1" {
					table = ""
				}
				add(encoded(d, database, name), name+", connections with "+client, table, name == "UTF8" && client == "UTF8",
					"dbname="+database, "search_path=public", "client_encoding="+client)
			}
		}
	default:
		for _, name := range []string{"latin1", "ascii", "utf8mb3", "utf8mb4", "gbk"} {
			create := func(t *testing.T) *testkit.Database {
				d := d.New(t)
				testkit.Must(t, d.Open(t, nil).Exec("ALTER DATABASE "+d.Schema+" CHARACTER SET "+name).Error)
				return d
			}
			can := name != "latin1" && name != "ascii"
			add(create, name, chinese, can)
			add(create, name+", connections with utf8mb3", chinese, can, "charset=utf8mb3")
			add(create, name+", connections with latin1", "", false, "charset=latin1")
			add(create, name+", connections with gbk", "", false, "charset=gbk")
		}
	}
	return sets
}

// encoded creates a database of PostgreSQL with an encoding. Connections have to name it.
func encoded(d *testkit.Database, name, encoding string) func(t *testing.T) *testkit.Database {
	return func(t *testing.T) *testkit.Database {
		admin := d.New(t).Open(t, nil)
		testkit.Must(t, admin.Exec(fmt.Sprintf("CREATE DATABASE %s ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0", name, encoding)).Error)
		t.Cleanup(func() { testkit.Must(t, admin.Exec("DROP DATABASE "+name+" WITH (FORCE)").Error) })
		return d
	}
}

// An order has a table and a counter with Chinese names, and so has its ticket.
type (
	order struct {
		ID   uidplugin.ID `gorm:"primaryKey;uid"`
		Size int
	}
	ticket struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Size int
	}
)

func (order) TableName() string  { return "订单" }
func (ticket) TableName() string { return "票" }

// Names of tables are compared, so they are exact whatever the character set of the database is.
func TestNames_OfTablesAreExactInEachCharacterSet(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, name := range []string{"latin1", "ascii", "utf8mb3", "gbk"} {
			d := d.New(t)
			testkit.Must(t, d.Open(t, nil).Exec("ALTER DATABASE "+d.Schema+" CHARACTER SET "+name).Error)
			for range 2 {
				db := d.Open(t, nil)
				p := harness.Use(t, db, uidplugin.WithModels(&order{}, &ticket{}))
				testkit.Must(t, p.AutoMigrate(&order{}, &ticket{}))
				testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(200*time.Millisecond)))
				row := order{Size: 1}
				testkit.Must(t, create(db, &row))
				testkit.Must(t, db.Create(&ticket{Size: 1}).Error)
				for found, err := range follow.Rows[order](t.Context(), db, row.ID-1) {
					testkit.Must(t, err)
					if found.ID != row.ID {
						t.Errorf("%s: %d is followed instead of %d", name, found.ID, row.ID)
					}
					break
				}
				found, err := p.Find(t.Context(), row.ID)
				testkit.Must(t, err)
				if found.(*order).ID != row.ID {
					t.Errorf("%s: Find(%d) = %+v", name, row.ID, found)
				}
			}
		}
	}, "mariadb", "mysql")
}
