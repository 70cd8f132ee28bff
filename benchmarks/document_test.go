package main

import (
	"errors"
	"strings"
	"testing"
)

func TestNumber_HasThreeDigits(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0", 0.37812: "0.378", 8.65: "8.65", 40: "40", 999.6: "1,000",
		1234:    "1,230",
		1234567: "1,230,000", -0.5: "-0.5", 100: "100", 0.0001: "0"} {
		if got := number(value); got != want {
			t.Errorf("%v is written as %s, want %s", value, got, want)
		}
	}
}

// What is worse is said first, and only if the figures say so.
func TestDocumentWorse_ComesFromTheFigures(t *testing.T) {
	t.Parallel()
	steady := func(v float64) Figure { return Figure{Median: v, Low: v, High: v, Samples: 3} }
	table := func(uid, auto float64) *Document {
		return &Document{Rows: &Report[Inserting]{Size: "whole", Figures: &Inserting{Rows: 1000, Chunk: 100,
			Engines: []InsertedEngine{{
				Engine: "mariadb", Version: "10", Kinds: []InsertedKind{
					{Name: kindUID, LastRate: steady(uid), Lookup: steady(1), Join: steady(1), TableMB: 1},
					{Name: kindAuto, LastRate: steady(auto), Lookup: steady(1), Join: steady(1), TableMB: 1},
				},
			}}}}}
	}
	worse := table(1000, 2000)
	text, err := worse.text(inEnglish)
	want := "MariaDB takes 1,000 rows a second with uidplugin. It takes more with these: AUTO_INCREMENT (2,000)."
	if all := worse.Worse(inEnglish); err != nil || len(all) != 1 || all[0] != want {
		t.Errorf("%q, %v", all, err)
	}
	if !strings.Contains(text, want) || strings.Index(text, want) > strings.Index(text, "## Rows in real databases") {
		t.Errorf("it is not said first:\n%s", text)
	}
	if all := table(2000, 1000).Worse(inEnglish); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

func TestReason_IsTheLineOfTheServersScript(t *testing.T) {
	t.Parallel()
	got := reason(errors.New("exit status 1\nservers.sh: mysql: a\nservers.sh: mysql: did not start\nlog"))
	if got != "servers.sh: mysql: did not start" {
		t.Error(got)
	}
	if got := reason(errors.New("UID_TEST_MYSQL is not set")); got != "UID_TEST_MYSQL is not set" {
		t.Error(got)
	}
}
