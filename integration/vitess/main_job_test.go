//go:build linux

package vitess_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// Rows of both shards have ids of one id space, and each id leads to its table, keyspace and row.
func TestVitess_MainJob(t *testing.T) {
	v := need(t)
	s := v.open(t)
	o := Order{Customer: "Ada", Items: []Item{{Title: "pen"}, {Title: "ink"}}}
	testkit.Must(t, s.db.Create(&o).Error)
	many := make([]Order, 12_000) // more than the 10,000 rows that vttablet returns at once
	testkit.Must(t, s.db.CreateInBatches(&many, 1000).Error)
	sale := Sale{Tenant: 7, Name: "desk"}
	testkit.Must(t, s.db.Create(&sale).Error)

	ids := []uidplugin.ID{o.ID, o.Items[0].ID, o.Items[1].ID}
	for _, m := range many {
		if m.ID <= o.ID {
			t.Fatalf("id %d after %d", m.ID, o.ID)
		}
		ids = append(ids, m.ID)
	}
	ids = append(ids, sale.ID)
	found, err := s.plugin.FindAll(t.Context(), ids)
	testkit.Must(t, err)
	if len(found) != len(ids) {
		t.Errorf("FindAll found %d of %d rows", len(found), len(ids))
	}
	for id, table := range map[uidplugin.ID]string{o.ID: "orders", o.Items[1].ID: "items", many[0].ID: "orders", sale.ID: "sales"} {
		where, err := v.open(t).plugin.Locate(t.Context(), id)
		if err != nil || where.Table != table || where.Database != "shop" {
			t.Errorf("Locate(%d) = %+v, %v; want table %s of shop", id, where, err, table)
		}
		_, err = s.plugin.Find(t.Context(), id)
		testkit.Must(t, err)
	}
	row, err := s.plugin.Find(t.Context(), sale.ID)
	if got, ok := row.(*Sale); !ok || got.Name != "desk" {
		t.Errorf("Find = %+v, %v", row, err)
	}
	var back Order
	testkit.Must(t, s.db.Preload("Items").First(&back, "id = ?", o.ID).Error)
	if len(back.Items) != 2 {
		t.Errorf("read back %+v", back)
	}
	for _, shard := range []string{"shop:-80", "shop:80-"} {
		one, err := gorm.Open(mysql.Open(v.dsn(shard)), &gorm.Config{Logger: logger.Discard})
		testkit.Must(t, err)
		var n int64
		testkit.Must(t, one.Model(&Order{}).Count(&n).Error)
		testkit.Must(t, testkit.Close(one))
		if n < 4000 {
			t.Errorf("%d orders on %s: the ids do not spread over the shards", n, shard)
		}
	}
}

// A row keeps its id when an upsert updates it, also if the id chooses the shard, which Vitess lets no statement assign.
func TestVitess_Upserts(t *testing.T) {
	s := need(t).open(t)
	o := Order{Customer: "Ada", Note: "old"}
	testkit.Must(t, s.db.Create(&o).Error)
	again := []Order{{ID: o.ID, Customer: "Ada", Note: "new"}, {Customer: "Bob"}}
	testkit.Must(t, s.db.Clauses(clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"note"})}).Create(&again).Error)
	if again[0].ID != o.ID || again[1].ID <= o.ID {
		t.Errorf("ids %d and %d after the upsert of %d", again[0].ID, again[1].ID, o.ID)
	}
	o.Customer = "Eve"
	testkit.Must(t, s.db.Save(&o).Error)
	testkit.Must(t, s.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Order{ID: o.ID, Customer: "Eve", Note: "all"}).Error)
	var back Order
	testkit.Must(t, s.db.First(&back, "id = ?", o.ID).Error)
	if back.Customer != "Eve" || back.Note != "all" {
		t.Errorf("the order is %+v", back)
	}

	// By the unique index of a tenant: the row exists, so its id replaces the new one.
	first := Stock{Tenant: 1, Name: "pen", Amount: 1}
	testkit.Must(t, s.db.Create(&first).Error)
	next := []Stock{{Tenant: 1, Name: "ink", Amount: 2}, {Tenant: 1, Name: "pen", Amount: 3}}
	for i := range next {
		testkit.Must(t, s.db.Clauses(clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"amount"})}).Create(&next[i]).Error)
	}
	if next[1].ID != first.ID || next[0].ID == first.ID || next[0].ID == 0 {
		t.Errorf("ids %d and %d; the pen has %d", next[0].ID, next[1].ID, first.ID)
	}
	ignored := Stock{Tenant: 1, Name: "pen", Amount: 9}
	testkit.Must(t, s.db.Clauses(clause.Insert{Modifier: "IGNORE"}).Create(&ignored).Error)
	var amount int64
	testkit.Must(t, s.db.Model(&Stock{}).Where("id = ?", first.ID).Pluck("amount", &amount).Error)
	if amount != 3 {
		t.Errorf("the amount is %d", amount)
	}
}

// The command works on the registry, and prints the row of an id from the other keyspace.
func TestVitess_Command(t *testing.T) {
	v := need(t)
	s := v.open(t)
	o := Order{Customer: "Ada", Note: "by the command"}
	testkit.Must(t, s.db.Create(&o).Error)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"shop", "no problem"}},
		{[]string{"slots"}, []string{"1"}},
		{[]string{"where", "--row", o.ID.String()}, []string{"orders", "shop", "by the command"}},
		{[]string{"doctor", "--database", "shop=" + v.dsn("shop")}, []string{"0 findings"}},
	} {
		out, err := exec.Command(filepath.Join(os.Getenv(binaries), "uid"), slices.Concat([]string{"--dsn", v.dsn("reg")}, c.args)...).CombinedOutput()
		t.Logf("uid %s\n%s", strings.Join(c.args, " "), out)
		if err != nil {
			t.Errorf("uid %s: %v", strings.Join(c.args, " "), err)
		}
		testkit.SaysAll(t, string(out), c.want...)
	}
}

// The example of docs/distributed.md works, also a second time.
func TestVitess_Example(t *testing.T) {
	v := need(t)
	for range 2 {
		out, err := exec.Command(filepath.Join(os.Getenv(binaries), "shards"), "-registry", v.dsn("reg"), "-shard", v.dsn("shop")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		testkit.SaysAll(t, string(out), "  shard1  Ada  ", "Fay of customers")
	}
}
