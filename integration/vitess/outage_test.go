//go:build linux

package vitess_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"context"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var killFor = flag.Duration("vitess.for", time.Minute, "how long TestVitess_KilledProcessesAndServers goes on")

const (
	writers = 8
	lead    = 3 * time.Second // short, so that slots change hands often
)

// Processes create rows on both shards while they are killed, and mysqld with the registry and all rows is killed too.
// No id comes twice, and no row is missing whose creation was acknowledged.
//
// The long form:
//
//	make test-vitess VITESS_FLAGS='-run Killed -vitess.for 10m'
func TestVitess_KilledProcessesAndServers(t *testing.T) {
	v := need(t)
	s := v.open(t, uidplugin.WithLead(lead))
	ledger, acknowledged := testkit.NewLedger(t), sync.Map{}
	line := func(text string) {
		table, ids, _ := strings.Cut(text, " ")
		if table == "twice" {
			t.Error(ids)
			return
		}
		for text := range strings.FieldsSeq(ids) {
			var id int64
			if _, err := fmt.Sscan(text, &id); err != nil {
				t.Errorf("a process says %q", text)
				return
			}
			ledger.Add(table, id)
			acknowledged.Store(id, table)
		}
	}
	var all [writers]*testkit.Process
	task := writeTask{v.dsn("reg"), v.dsn("shop")}
	starts, stop := 0, make(chan struct{})
	var server sync.WaitGroup
	crashes := 0
	server.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(12 * time.Second):
			}
			if err := v.crash(time.Duration(2+rand.IntN(10)) * time.Second); err != nil {
				t.Error(err)
				return
			}
			crashes++
		}
	})
	for begin := time.Now(); time.Since(begin) < *killFor && !t.Failed(); time.Sleep(300 * time.Millisecond) {
		i := rand.IntN(writers)
		if all[i] != nil {
			all[i].Kill()
		}
		all[i] = testkit.Start(t, "writer", task, line)
		starts++
		// So that others may reclaim them at once, and not after a minute.
		_ = s.registry.Exec("UPDATE WORKER_SLOT SET HOLDER = '', VERSION = VERSION + 1000 WHERE HOLDER <> '' AND SEEN_TICK < ?",
			generator.DefaultLayout().TickAt(time.Now().Add(-2*lead-time.Second))).Error
	}
	close(stop)
	server.Wait()
	for _, p := range all {
		if p != nil {
			testkit.Must(t, p.Stop())
		}
	}
	v.judge(t, s, &acknowledged)
	var slots int64
	testkit.Must(t, s.registry.Table("WORKER_SLOT").Count(&slots).Error)
	t.Logf("%d rows acknowledged, %d ids twice; %d processes started, mysqld killed %d times; %d slots", ledger.Len(), ledger.Twice(), starts, crashes, slots)
	if ledger.Len() < 1000 || crashes == 0 || slots >= int64(starts) {
		t.Error("too little has happened: this shows nothing")
	}
}

// judge compares the rows with what was acknowledged.
func (v *vitess) judge(t *testing.T, s shop, acknowledged *sync.Map) {
	rows := map[int64]string{}
	for _, table := range []string{"orders", "items", "sales"} {
		for after := int64(0); ; {
			var ids []int64
			testkit.Must(t, s.db.Table(table).Where("id > ?", after).Order("id").Limit(5000).Pluck("id", &ids).Error)
			for _, id := range ids {
				if other, twice := rows[id]; twice {
					t.Errorf("%s and %s have a row %d, or there are two", table, other, id)
				}
				rows[id] = table
			}
			if len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
		}
	}
	missing, located := 0, 0
	acknowledged.Range(func(key, value any) bool {
		id, table := key.(int64), value.(string)
		if rows[id] != table {
			if missing++; missing < 10 {
				t.Errorf("the row %d of %s is missing: %q", id, table, rows[id])
			}
		}
		if located < 500 {
			where, err := s.plugin.Locate(t.Context(), uidplugin.ID(id))
			if err != nil || where.Table != table || where.Database != "shop" {
				t.Errorf("Locate(%d) = %+v, %v; want %s", id, where, err, table)
			}
			located++
		}
		return true
	})
	t.Logf("%d rows missing, of %d in the tables", missing, len(rows))
}

// A writeTask has the data source names of a writer.
type writeTask struct{ Registry, Shop string }

// write creates rows until its input ends, and prints the ids of those that were acknowledged.
func write(task writeTask) error {
	ended := testkit.InputEnded()
	var s shop
	for {
		var err error
		if s, err = openShop(task.Registry, task.Shop, uidplugin.WithLead(lead)); err == nil {
			break
		}
		if s.db != nil {
			_ = testkit.Close(s.db)
		}
		if s.registry != nil {
			_ = testkit.Close(s.registry)
		}
		select {
		case <-ended:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
	defer s.plugin.Close(context.Background())
	for n := int64(0); ; n++ {
		orders := make([]Order, 10)
		orders[0].Items = []Item{{Title: "pen"}}
		if err := s.db.Create(&orders).Error; err == nil {
			say("orders", orders, func(o Order) uidplugin.ID { return o.ID })
			say("items", orders[0].Items, func(i Item) uidplugin.ID { return i.ID })
		} else if strings.Contains(err.Error(), "Error 1062") {
			fmt.Println("twice", err)
		}
		sales := []Sale{{Tenant: n % 100, Name: "desk"}}
		if err := s.db.Create(&sales).Error; err == nil {
			say("sales", sales, func(s Sale) uidplugin.ID { return s.ID })
		} else if strings.Contains(err.Error(), "Error 1062") {
			fmt.Println("twice", err)
		}
		select {
		case <-ended:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// say prints a line of ids.
func say[T any](table string, rows []T, id func(T) uidplugin.ID) {
	text := table
	for _, r := range rows {
		text += " " + id(r).String()
	}
	fmt.Println(text)
}
