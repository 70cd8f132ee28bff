package fill_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// statement returns a handle as GORM gives it to the callbacks of Create.
func statement(tb testing.TB, db *gorm.DB, dest any) *gorm.DB {
	tx := db.Session(&gorm.Session{NewDB: true, Context: context.Background()}).Model(dest)
	must(tb, tx.Statement.Parse(dest))
	tx.Statement.Dest = dest
	tx.Statement.ReflectValue = reflect.ValueOf(dest).Elem()
	return tx
}

// filler returns a function that only calls the callbacks that set ids and end their notes.
func filler(db *gorm.DB) func(stmt *gorm.DB) {
	creates := db.Callback().Create()
	set, settle := creates.Get("uidplugin:fill"), creates.Get("uidplugin:settle")
	return func(stmt *gorm.DB) {
		set(stmt)
		settle(stmt)
	}
}

// BenchmarkFillOneRow is the callback alone, with the resetting of the key.
func BenchmarkFillOneRow(b *testing.B) {
	row := plugintest.Parcel{}
	db := plugintest.Nowhere(b, uidplugin.WithWorkerID(1))
	tx, fill := statement(b, db, &row), filler(db)
	b.ReportAllocs()
	for b.Loop() {
		row.ID = 0
		fill(tx)
	}
	if row.ID == 0 || tx.Error != nil {
		b.Fatal(row.ID, tx.Error)
	}
}

// BenchmarkFill1000Rows reports the time of one row, including setting its key to zero again.
func BenchmarkFill1000Rows(b *testing.B) {
	rows := make([]plugintest.Parcel, 1000)
	db := plugintest.Nowhere(b, uidplugin.WithWorkerID(1))
	tx, fill := statement(b, db, &rows), filler(db)
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			rows[i].ID = 0
		}
		fill(tx)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
	if rows[999].ID == 0 || tx.Error != nil {
		b.Fatal(rows[999].ID, tx.Error)
	}
}
