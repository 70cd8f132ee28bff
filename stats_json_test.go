package uidplugin_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// What people publish of a process must be readable without this package: no number for a kind or a duration, no year 1,
// and an error that is not {}.
func TestStats_JSON(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		value any
		want  string
	}{
		{uidplugin.TableStats{Table: "orders", Generator: "cached", WorkerIDs: []int64{7}, From: at, Until: at, Lead: 1500 * time.Millisecond, Made: 9, Waits: 1},
			`{"table":"orders","generator":"cached","worker_ids":[7],"from":"2026-01-02T03:04:05Z","until":"2026-01-02T03:04:05Z","made":9,"waits":1,"lead":"1.5s"}`},
		{uidplugin.TableStats{Table: "*", Generator: "segment"}, `{"table":"*","generator":"segment","made":0,"waits":0}`},
		{uidplugin.SlotStats{ID: 1, Renewals: 2, LastError: errors.New("no \"way\""), Since: at},
			`{"id":1,"worker_ids":0,"given":0,"renewals":2,"failures":0,"sessions":0,"reclaimed":0,"allocated":0,"lost":0,"lost_commits":0,"since":"2026-01-02T03:04:05Z","last_error":"no \"way\""}`},
		{uidplugin.Location{ID: 7, Time: at, Table: "orders", WorkerID: 3, Session: uidplugin.Session{Slot: 1, Application: "shop", Host: "a", Port: "80", Kind: workernode.Container, From: at}},
			`{"id":"7","time":"2026-01-02T03:04:05Z","table":"orders","worker_id":3,"sequence":0,"session":{"slot":1,"application":"shop","host":"a","port":"80","kind":"container","from":"2026-01-02T03:04:05Z"}}`},
	} {
		if got, err := json.Marshal(c.value); err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want\n%s", got, err, c.want)
		}
	}

	fixed, err := json.Marshal(uidplugin.From(open(t, uidplugin.WithWorkerID(7))).Stats())
	must(t, err)
	p := uidplugin.From(open(t, uidplugin.WithModels(&part{})))
	whole, err := json.Marshal(p.Stats())
	must(t, err)
	for _, text := range []string{string(fixed), string(whole)} {
		var back map[string]any
		must(t, json.Unmarshal([]byte(text), &back))
		if strings.Contains(text, "0001-01-01") || back["layout"] != p.Layout().String() || back["tables"] == nil {
			t.Errorf("%s", text)
		}
	}
	if strings.Contains(string(fixed), "slot") || !strings.Contains(string(whole), `"id_space":"`) {
		t.Errorf("with a fixed worker id %s, else %s", fixed, whole)
	}
}

// A time.Time after the year 9999 cannot be written as JSON, and some layouts end later.
func TestStats_JSONOfALayoutThatEndsAfter9999(t *testing.T) {
	t.Parallel()

	stats := uidplugin.From(open(t, uidplugin.WithLayout(generator.Layout{TimeBits: 51, WorkerBits: 6, SequenceBits: 6, Tick: time.Millisecond, Epoch: time.UnixMilli(1582136402000)}))).Stats()
	if text, err := json.Marshal(stats); err != nil || stats.Expires.Year() != 9999 {
		t.Errorf("%s, %v", text, err)
	}
}

// A host name of another program must not begin a new line in a log.
func TestLocation_StringQuotesWhatTablesSay(t *testing.T) {
	t.Parallel()

	l := uidplugin.Location{ID: 7, Table: "orders\n", Database: "shop", Session: uidplugin.Session{Application: "a\x1b[31m", Host: "h\r\nERROR", Port: "80"}}
	want := `id 7 of "orders\n" of the database "shop", made 0001-01-01 00:00:00 UTC by "a\x1b[31m" on "h\r\nERROR", port "80"`
	if got := l.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if got := (uidplugin.Location{}).String(); !strings.HasPrefix(got, "id 0 of a table, made ") {
		t.Error(got)
	}
}
