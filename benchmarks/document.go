package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// documentText is the text of docs/benchmarks.md. Each number in it is of the figures.
//
//go:embed document.tmpl
var documentText string

// A Document is what the text is about. A part without figures is nil, and left out.
type Document struct {
	Making       *Report[Making]
	Create       *Report[Creating]
	Rows         *Report[Inserting]
	Order        *Report[Ordering]
	Coordination *Report[Coordinating]
	Starting     *Report[Starting]
	Charts       string // their folder, as links of the document have it
	Results      string // the folder of the raw figures, in the same way
}

// write writes the document and its charts from the raw figures.
func write(to place) error {
	d, err := loadDocument(to)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to.charts, 0o777); err != nil {
		return err
	}
	if err := d.draw(to.charts); err != nil {
		return err
	}
	text, err := d.text()
	if err != nil {
		return err
	}
	return os.WriteFile(to.document, []byte(text), 0o666)
}

// loadDocument reads the figures of all parts.
func loadDocument(to place) (*Document, error) {
	results, err := filepath.Rel(filepath.Dir(to.document), to.results)
	if err != nil {
		return nil, err
	}
	d := &Document{Charts: filepath.Base(to.charts), Results: filepath.ToSlash(results)}
	var errs [6]error
	d.Making, errs[0] = load[Making](to.results, "making")
	d.Create, errs[1] = load[Creating](to.results, "create")
	d.Rows, errs[2] = load[Inserting](to.results, "rows")
	d.Order, errs[3] = load[Ordering](to.results, "order")
	d.Coordination, errs[4] = load[Coordinating](to.results, "coordination")
	d.Starting, errs[5] = load[Starting](to.results, "starting")
	return d, errors.Join(errs[:]...)
}

// text returns the document.
func (d *Document) text() (string, error) {
	t, err := template.New("document").Funcs(template.FuncMap{
		"number": number, "seconds": func(d time.Duration) string { return number(d.Seconds()) },
		"join": func(list []string) string { return strings.Join(list, ", ") },
	}).Parse(documentText)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return "", err
	}
	return wrap(strings.ReplaceAll(b.String(), "(CHARTS/", "("+d.Charts+"/"), 120), nil
}

// wrap breaks paragraphs and items of lists into lines of at most width characters, and leaves tables, headings,
// pictures and code as they are.
func wrap(text string, width int) string {
	var lines []string
	var words []string
	indent := ""
	flush := func() {
		line := indent
		for i, word := range words {
			if i > 0 && len(line)+1+len(word) > width {
				lines = append(lines, line)
				line = strings.Repeat(" ", len(indent))
			} else if i > 0 {
				line += " "
			}
			line += word
		}
		if len(words) > 0 {
			lines = append(lines, line)
		}
		words, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "```") {
			code = !code
			flush()
			lines = append(lines, line)
			continue
		}
		switch {
		case code:
			lines = append(lines, line)
		case line == "":
			flush()
			if len(lines) > 0 && lines[len(lines)-1] != "" {
				lines = append(lines, "")
			}
		case strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "!["):
			flush()
			lines = append(lines, line)
		case strings.HasPrefix(line, "* "):
			flush()
			indent, words = "* ", strings.Fields(line[2:])
		default:
			words = append(words, strings.Fields(line)...)
		}
	}
	flush()
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// A table is one of Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// spread writes a figure with its quartiles.
func spread(f Figure) string {
	if f.Noisy {
		return number(f.Median) + " (noisy)"
	}
	if f.Samples < 2 || f.Low == f.High {
		return number(f.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(f.Median), number(f.Low), number(f.High))
}

// times writes how many times b goes into a.
func times(a, b float64) string {
	if b == 0 || math.IsInf(a/b, 0) {
		return "–"
	}
	return number(a/b) + " times"
}

// percent writes a part of a whole, with two digits behind the point.
func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(whole))
}

// engineNames are the names that people know.
var engineNames = map[string]string{"mariadb": "MariaDB", "mysql": "MySQL", "postgres": "PostgreSQL",
	"sqlite": "SQLite"}

// Machines says where and when the parts were measured, one line for each.
func (d *Document) Machines() string {
	t := &table{head: []string{"part", "date (UTC)", "took", "load before", "commit", "form"}}
	add := func(name string, size string, date time.Time, took time.Duration, load string, m Machine) {
		t.add(name, date.Format("2006-01-02 15:04"), took.String(), load, m.Commit, size)
	}
	each(d, add)
	return t.String()
}

// each calls f for each part that was measured.
func each(d *Document, f func(name string, size string, date time.Time, took time.Duration, load string, m Machine)) {
	if r := d.Making; r != nil {
		f("making", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
	if r := d.Create; r != nil {
		f("create", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
	if r := d.Rows; r != nil {
		f("rows", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
	if r := d.Order; r != nil {
		f("order", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
	if r := d.Coordination; r != nil {
		f("coordination", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
	if r := d.Starting; r != nil {
		f("starting", r.Size, r.Date, r.Took, r.Load, r.Machine)
	}
}

// Computers are the different machines.
func (d *Document) Computers() (all []string) {
	each(d, func(_, _ string, _ time.Time, _ time.Duration, _ string, m Machine) {
		text := fmt.Sprintf("%s, %d CPUs, %d GB of memory, Linux %s, %s", m.CPU, m.CPUs, m.MemoryGB, m.Kernel, m.Go)
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	})
	return all
}

// Versions are those of the peers.
func (d *Document) Versions() (all []string) {
	each(d, func(_, _ string, _ time.Time, _ time.Duration, _ string, m Machine) {
		for name, version := range m.Peers {
			name = strings.TrimPrefix(name, "github.com/")
			if text := name + " " + version; !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	})
	slices.Sort(all)
	return all
}

// Whole reports whether all parts have the form that the document is for.
func (d *Document) Whole() bool {
	whole := true
	each(d, func(_, size string, _ time.Time, _ time.Duration, _ string, _ Machine) {
		whole = whole && size == Whole().Name
	})
	return whole
}
