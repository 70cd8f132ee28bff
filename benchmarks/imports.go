package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Imported is an import by one process, while another process inserts rows one by one.
type Imported struct {
	Rows    int
	Seconds float64
	First   float64 // the most ms by which ids were ahead of the clock in the first 100 ms of the import
	Ahead   float64 // the most ms by which ids were ahead of the clock after that
	After   int     // the most imported rows that sort after a row of the other process, but are older
}

// goalAhead is the most by which ids of an import may be ahead of the clock after its first 100 ms.
const goalAhead = 250 * time.Millisecond

const importBatch = 1000

// An importedRow is a row of a usual width.
type importedRow struct {
	ID         uidplugin.ID
	Alone      bool // of the process that inserts rows one by one
	CustomerID int64
	SKU        string `gorm:"size:32"`
	Quantity   int
	Cents      int64
	Note       string `gorm:"size:200"`
	CreatedAt  time.Time
}

func newImportedRow(alone bool) importedRow {
	return importedRow{Alone: alone, CustomerID: 4711, SKU: "AB-1234-XL", Quantity: 3, Cents: 1999,
		Note: "leave it with the neighbour, please", CreatedAt: time.Now()}
}

type importTask struct {
	Database *testkit.Database
	Rows     int
}

// A batch is a part of an import.
type batch struct {
	At    int64         // when it got its ids, in ns since 1970
	Ahead time.Duration // how far the last id was ahead of the clock
}

// importRows is the role of a process that imports. It prints a line, waits for a line, and prints its batches.
func importRows(task importTask) (err error) {
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	p, err := use(db, uidplugin.WithModels(&importedRow{}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	var batches []batch
	layout := generator.DefaultLayout()
	note := func(tx *gorm.DB) {
		rows := tx.Statement.ReflectValue
		if rows.Kind() != reflect.Slice || rows.Len() == 0 {
			return
		}
		now := time.Now()
		id := rows.Index(rows.Len() - 1).Interface().(importedRow).ID
		parts, err := layout.Decompose(int64(id))
		_ = tx.AddError(err)
		batches = append(batches, batch{now.UnixNano(), parts.Time.Sub(now)})
	}
	if err := db.Callback().Create().Before("gorm:create").Register("note", note); err != nil {
		return err
	}
	rows := make([]importedRow, task.Rows)
	for i := range rows {
		rows[i] = newImportedRow(false)
	}
	fmt.Println("true")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	begin := batch{At: time.Now().UnixNano()}
	if err := db.CreateInBatches(rows, importBatch).Error; err != nil {
		return err
	}
	batches = append(slices.Insert(batches, 0, begin), batch{At: time.Now().UnixNano()})
	return json.NewEncoder(os.Stdout).Encode(batches)
}

func measureImports(ctx context.Context, l *Lab, s *Server) (all []Ordered, err error) {
	for _, rows := range l.Imports {
		if err := s.with(func(d *testkit.Database, db *gorm.DB) error {
			i, err := imported(ctx, d, db, rows)
			all = append(all, Ordered{Engine: s.Title, Import: &i})
			l.Say("order: %s, an import of %d rows in %.2f s: %.0f ms ahead, then %.0f ms, %d rows after a later one",
				s.Title, rows, i.Seconds, i.First, i.Ahead, i.After)
			return err
		}); err != nil {
			return nil, fmt.Errorf("an import of %d rows: %w", rows, err)
		}
	}
	return all, nil
}

// imported lets another process import rows. Meanwhile, and once at the end, this process inserts single rows.
func imported(ctx context.Context, d *testkit.Database, db *gorm.DB, rows int) (i Imported, err error) {
	if err := db.AutoMigrate(&importedRow{}); err != nil {
		return i, err
	}
	p, err := use(db, uidplugin.WithModels(&importedRow{}))
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	c, err := launch(ctx, "import", importTask{d, rows})
	if err != nil {
		return i, err
	}
	defer c.Kill()
	var ready bool
	if err := errors.Join(c.read(&ready), c.Send("go")); err != nil {
		return i, err
	}
	var batches []batch
	done := make(chan error, 1)
	go func() { done <- c.read(&batches) }()
	var alone []commit
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				return i, err
			}
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
		row := newImportedRow(true)
		at := time.Now().UnixNano()
		if err := db.Create(&row).Error; err != nil {
			return i, err
		}
		alone = append(alone, commit{fmt.Sprint(int64(row.ID)), at})
	}
	var ids []int64
	err = db.Model(&importedRow{}).Where("alone = ?", false).Order("id").Pluck("id", &ids).Error
	if err = errors.Join(err, c.Wait()); err != nil {
		return i, err
	}
	return judgeImport(ids, batches, alone)
}

// judgeImport needs ascending ids. The first and the last batch only tell when the import began and ended.
func judgeImport(ids []int64, batches []batch, alone []commit) (i Imported, err error) {
	begin, end := batches[0].At, batches[len(batches)-1].At
	batches = batches[1 : len(batches)-1]
	i.Rows, i.Seconds = len(ids), time.Duration(end-begin).Seconds()
	for _, b := range batches {
		ms := float64(b.Ahead.Microseconds()) / 1000
		if time.Duration(b.At-begin) < 100*time.Millisecond {
			i.First = max(i.First, ms)
		} else {
			i.Ahead = max(i.Ahead, ms)
		}
	}
	for _, row := range alone {
		var id int64
		if _, err := fmt.Sscan(row.ID, &id); err != nil {
			return i, err
		}
		earlier := sort.Search(len(batches), func(n int) bool { return batches[n].At >= row.At })
		below, _ := slices.BinarySearch(ids, id)
		i.After = max(i.After, min(earlier*importBatch, len(ids))-below)
	}
	return i, nil
}

// goal returns how many imported rows may sort after a younger row, and whether both goals of the import are met.
func (i Imported) goal() (rows int, verdict string) {
	rows = int(float64(i.Rows) / i.Seconds * goalAhead.Seconds())
	if i.After <= rows && i.Ahead <= float64(goalAhead.Milliseconds()) {
		return rows, "met"
	}
	return rows, "missed"
}

func importTable(all []Ordered) string {
	t := table{{"an import in batches of 1,000", "rows", "rows/s", "ms ahead in the first 100 ms", "ms ahead later",
		"rows after a later one", "at most", "goal"}}
	for _, o := range all {
		if i := o.Import; i != nil {
			rows, verdict := i.goal()
			t.add(o.Engine, number(float64(i.Rows)), number(float64(i.Rows)/i.Seconds), number(i.First), number(i.Ahead),
				number(float64(i.After)), number(float64(rows)), verdict)
		}
	}
	if len(t) == 1 {
		return ""
	}
	return "\n" + t.String()
}

// orderRuns groups all results except imports by engine and number of processes.
func orderRuns(all []Ordered) [][]Ordered {
	type run struct {
		engine  string
		writers int
	}
	all = slices.DeleteFunc(slices.Clone(all), func(o Ordered) bool { return o.Import != nil })
	return groups(all, func(o Ordered) run { return run{o.Engine, o.Writers} })
}
