package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	runRole()
	os.Exit(m.Run())
}

// tiny returns a lab whose figures mean nothing, on SQLite and on the servers that the environment names.
func tiny(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{Sizes: Tiny(), Engines: []string{"sqlite"}, Running: true, Log: t.Output(), Begun: time.Now()}
	for _, e := range testkit.Engines() {
		if e.Variable != "" && e.Available() {
			l.Engines = append(l.Engines, e.Name)
		}
	}
	return l
}

// All parts are measured at a tiny size. The document that comes of it, in both languages, has all parts, charts that are
// XML, no line that is too long, and no sentence that is.
func TestCompare_MeasuresAllPartsAndWritesTheDocument(t *testing.T) {
	l := tiny(t)
	folder := t.TempDir()
	to := place{filepath.Join(folder, "benchmarks.md"), filepath.Join(folder, "benchmarks"),
		filepath.Join(folder, "results")}
	testkit.Must(t, measure(t.Context(), l, "", to))
	testkit.Must(t, write(to))
	text, err := os.ReadFile(to.document)
	testkit.Must(t, err)
	checkText(t, string(text))
	chinese, err := os.ReadFile(inChinese.page(to.document))
	testkit.Must(t, err)
	checkText(t, string(chinese))
	checkChinese(t, string(chinese))
	for _, heading := range []string{"What is worse", "Making ids", "db.Create", "Rows in real databases", "SQLite",
		"Order", "What coordination costs",
		"Starting", "Method and limits"} {
		if !strings.Contains(string(text), "# "+heading) {
			t.Errorf("the document has no section %q", heading)
		}
	}
	chart := regexp.MustCompile(`\]\((?:\.\./)?(benchmarks/[^)]*)\)`)
	links := chart.FindAllStringSubmatch(string(text), -1)
	if theirs := chart.FindAllString(string(chinese), -1); len(links) < 7 || len(theirs) != len(links) {
		t.Errorf("the document shows %d charts, and %d in Chinese", len(links), len(theirs))
	}
	for _, link := range links {
		checkChart(t, filepath.Join(folder, link[1]))
	}
}

// checkText checks what a reader would stumble over.
func checkText(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if len([]rune(line)) > 121 && !strings.HasPrefix(line, "|") && !strings.Contains(line, "](") {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
		for _, bad := range []string{"NaN", "Inf", "%!", "<no value>", "<nil>"} {
			if strings.Contains(line, bad) {
				t.Errorf("a line has %s: %s", bad, line)
			}
		}
	}
	prose := regexp.MustCompile(`(?m)^(\||#|!\[|\* .*:$).*$`).ReplaceAllString(text, "\n")
	for _, paragraph := range regexp.MustCompile(`\n\n|\n\* `).Split(prose, -1) {
		for _, sentence := range regexp.MustCompile(`[.:;?!]\*{0,2}\s|[。：；]`).Split(paragraph+"\n", -1) {
			// A list of names or figures may be longer.
			if words := len(strings.Fields(sentence)); words > 25 && strings.Count(sentence, ",") < 4 {
				t.Errorf("a sentence of %d words: %s", words, sentence)
			}
		}
	}
}

// checkChinese checks that nothing has been left in English: two words of it in a row.
func checkChinese(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(regexp.MustCompile("(?s)`.*?`|worker id").ReplaceAllString(text, "")) {
		if found := regexp.MustCompile(`\b[a-z]{2,} [a-z]{2,}\b`).FindString(line); found != "" {
			t.Errorf("%q in %s", found, line)
		}
	}
}

// checkChart checks that a chart is XML, follows dark mode, and is small.
func checkChart(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if !strings.Contains(string(text), "prefers-color-scheme:dark") || !strings.Contains(string(text),
		"fill:#1F2328") ||
		!strings.Contains(string(text), "fill:#FFFFFF") {
		t.Errorf("%s does not follow dark mode", file)
	}
	if len(text) > 100_000 {
		t.Errorf("%s has %d bytes", file, len(text))
	}
}

// What was measured is measured again only if somebody asks for it.
func TestMeasure_OnePartOnly(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := tiny(t)
	l.Engines = nil
	testkit.Must(t, measure(t.Context(), l, "create", place{results: folder}))
	files, err := os.ReadDir(folder)
	testkit.Must(t, err)
	if len(files) != 1 || files[0].Name() != "create.json" {
		t.Errorf("there are %v", files)
	}
	if err := measure(t.Context(), l, "crate", place{results: folder}); err == nil || !strings.Contains(err.Error(),
		`"crate"`) {
		t.Errorf("a part that does not exist: %v", err)
	}
}

// A server that cannot be had is named in the document, and keeps nothing else from being measured.
func TestMeasure_WithoutAServer(t *testing.T) {
	t.Setenv("UID_TEST_POSTGRES", "")
	l := tiny(t)
	l.Engines = []string{"postgres", "sqlite"}
	r, err := measureInserting(t.Context(), l)
	testkit.Must(t, err)
	if len(r.Engines) != 2 || r.Engines[0].Missing == "" || len(r.measured()) != 1 {
		text, _ := json.Marshal(r)
		t.Errorf("%s", text)
	}
}

// An interrupt ends a measurement with an error, and writes no report.
func TestMeasure_Interrupted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := measure(ctx, tiny(t), "making,create,order", place{results: folder}); !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("there are %v, %v", files, err)
	}
}
