package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestNumber_HasThreeDigits(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0", 0.37812: "0.378", 8.65: "8.65", 40: "40", 999.6: "1,000",
		1234: "1,230", 1234567: "1,230,000", -0.5: "-0.5", 100: "100"} {
		if got := number(value); got != want {
			t.Errorf("%v is written as %s, want %s", value, got, want)
		}
	}
}

// A table or chart must not differ from the results, because of an edit or because it was not written again.
func TestWrite_DocsAreOfTheResults(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	to := place{filepath.Join(folder, "benchmarks.md"), filepath.Join(folder, "benchmarks"), "results"}
	page, err := os.ReadFile("../docs/benchmarks.md")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(to.page, page, 0o666))
	testkit.Must(t, write(to))
	charts, err := filepath.Glob(to.charts + "/*.svg")
	testkit.Must(t, err)
	if len(charts) != 10 {
		t.Errorf("there are %d charts, want 10", len(charts))
	}
	for _, file := range append(charts, to.page) {
		name, err := filepath.Rel(folder, file)
		testkit.Must(t, err)
		got, err := os.ReadFile(file)
		testkit.Must(t, err)
		want, err := os.ReadFile("../docs/" + name)
		same := string(want) == string(got) || runtime.GOARCH != "amd64" && name != "benchmarks.md" // others round differently
		if err != nil || !same {
			t.Errorf("docs/%s is not of benchmarks/results (%v): run go run ./benchmarks -render", name, err)
		}
	}
}
