package uidtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
)

// Numbers that a file of a test suite may contain: a change of them breaks the suites of users.
func TestFixed_TheSameInEachRun(t *testing.T) {
	t.Parallel()

	want := map[string][]uint64{
		"authors": {1113799104923049104, 1113799104923049105, 1113799104923049106},
		"books":   {1113799104923715504, 1113799104923715505, 1113799104923715506},
	}
	for _, order := range []string{"aaabbb", "bababa", "bbbaaa"} {
		db := open(t, uidtest.Fixed(noon), &author{}, &book{})
		got := map[string][]uint64{}
		for i, r := range order {
			a, b := author{}, book{Title: fmt.Sprint(i)}
			if r == 'a' {
				testkit.Must(t, db.Create(&a).Error)
				got["authors"] = append(got["authors"], uint64(a.ID))
				continue
			}
			testkit.Must(t, db.Create(&b).Error)
			got["books"] = append(got["books"], uint64(b.ID))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("creates in the order %s have the ids\n\t%v, want\n\t%v", order, got, want)
		}
	}
}

// A tick has 16 ids in the default layout. Those that follow are of the next ticks, up to the end of the layout.
func TestFixed_IDsAscend(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	last := layout.TimeOf(layout.MaxTick() - 1)
	db := open(t, uidtest.Fixed(last, uidplugin.WithLogger(nil)), &author{})
	rows := make([]author, 32)
	testkit.Must(t, db.Create(&rows).Error)
	for i, row := range rows {
		parts, err := layout.Decompose(int64(row.ID))
		testkit.Must(t, err)
		if want := last.Add(time.Duration(i/16) * layout.Tick); !parts.Time.Equal(want) || parts.Sequence != int64(i%16) || parts.WorkerID == 0 {
			t.Errorf("id %d is %+v, want the time %v", i, parts, want)
		}
	}
	testkit.IsError(t, db.Create(&author{}).Error, generator.ErrTimeExhausted, "authors")

	for _, at := range []time.Time{{}, layout.Epoch.Add(-time.Second), layout.Expires()} {
		testkit.IsError(t, testkit.SQLite{}.Open(t).Use(uidtest.Fixed(at)), generator.ErrLayout)
	}
}
