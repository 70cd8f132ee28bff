package main

import (
	"context"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.RunRole(roles)
	os.Exit(m.Run())
}

// tiny returns a lab whose figures mean nothing, on SQLite and on the servers that the environment names.
func tiny(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{Sizes: Tiny(), Running: true, Log: t.Output(), Begun: time.Now()}
	for _, e := range testkit.Engines() {
		if e.Variable != "" && e.Available() && e.Name != "mysql" { // which takes the statements of MariaDB
			l.Engines = append(l.Engines, e.Name)
		}
	}
	l.Engines = append(l.Engines, "sqlite")
	return l
}

// in returns a place in a folder.
func in(folder string) place {
	return place{filepath.Join(folder, "page.md"), filepath.Join(folder, "charts"), filepath.Join(folder, "results")}
}

// Without this test a part could fail only in a run of an hour.
func TestMeasure_AllPartsHaveTablesAndCharts(t *testing.T) {
	l, to := tiny(t), in(t.TempDir())
	testkit.Must(t, measure(t.Context(), l, "", to))
	testkit.Must(t, write(to))
	text, err := os.ReadFile(to.page)
	testkit.Must(t, err)
	for _, bad := range []string{"NaN", "Inf", "%!", "<nil>", "Not measured"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the page has %s:\n%s", bad, text)
		}
	}
	charts, err := filepath.Glob(to.charts + "/*.svg")
	testkit.Must(t, err)
	if want := 7 + len(l.Engines); len(charts) != want {
		t.Errorf("there are %d charts, want %d: %v", len(charts), want, charts)
	}
	for _, file := range charts {
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		if err := xml.Unmarshal(text, new(struct {
			XMLName xml.Name `xml:"svg"`
		})); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Without this test one could ask for a part and wait an hour for all of them.
func TestMeasure_OnePartOnly(t *testing.T) {
	t.Parallel()
	l, to := tiny(t), in(t.TempDir())
	testkit.Must(t, measure(t.Context(), l, "create", to))
	files, err := os.ReadDir(to.results)
	testkit.Must(t, err)
	if len(files) != 1 || files[0].Name() != "create.json" {
		t.Errorf("there are %v", files)
	}
	if err := measure(t.Context(), l, "crate", to); err == nil || !strings.Contains(err.Error(), `"crate"`) {
		t.Errorf("a part that does not exist: %v", err)
	}
}

// Without this test a machine that cannot have one of the servers could measure nothing.
func TestMeasure_LeavesOutAServer(t *testing.T) {
	t.Setenv("UID_TEST_POSTGRES", "")
	l := tiny(t)
	l.Engines = []string{"postgres", "sqlite"}
	all, err := measureRows(t.Context(), l)
	testkit.Must(t, err)
	if len(all) != 6 || !strings.HasPrefix(all[0].Engine, "SQLite 3") {
		t.Errorf("%+v", all)
	}
}

// Without this test the figures of half a run could replace whole ones.
func TestMeasure_Interrupted(t *testing.T) {
	t.Parallel()
	to := in(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.IsError(t, measure(ctx, tiny(t), "making,create,order", to), context.Canceled)
	if files, err := os.ReadDir(to.results); err != nil || len(files) > 0 {
		t.Errorf("there are %v, %v", files, err)
	}
}
