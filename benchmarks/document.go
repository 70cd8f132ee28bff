package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// documentText is the text of docs/benchmarks.md and docs/zh/benchmarks.md. Each number in it is of the figures.
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

// write writes the document, in both languages, and its charts from the raw figures.
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
	for _, in := range []language{inEnglish, inChinese} {
		text, err := d.text(in)
		if err != nil {
			return err
		}
		file := in.page(to.document)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
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

// template returns the template of the document in a language.
func (in language) template() (*template.Template, error) {
	return template.New("document").Funcs(template.FuncMap{
		"number": number, "seconds": func(d time.Duration) string { return number(d.Seconds()) },
		"in": func() language { return in }, "en": func() bool { return in == inEnglish }, "say": in.say,
	}).Parse(documentText)
}

// text returns the document in a language.
func (d *Document) text(in language) (string, error) {
	t, err := in.template()
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return "", err
	}
	links := strings.NewReplacer("(CHARTS/", "("+in.up()+d.Charts+"/", "(RESULTS)", "("+in.up()+d.Results+")")
	return wrap(links.Replace(b.String()), 120), nil
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
func (in language) spread(f Figure) string {
	if f.Noisy {
		return in.valued(number(f.Median), in.say("noisy", "有干扰"))
	}
	if f.Samples < 2 || f.Low == f.High {
		return number(f.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(f.Median), number(f.Low), number(f.High))
}

// times writes how many times b goes into a, with two digits behind the point, or one if it is often.
func times(a, b float64) string {
	switch {
	case b == 0:
		return "–"
	case a/b < 2:
		return fmt.Sprintf("%.2f", a/b)
	}
	return fmt.Sprintf("%.1f", a/b)
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
func (d *Document) Machines(in language) string {
	t := &table{head: []string{in.say("part", "部分"), in.say("date (UTC)", "日期（UTC）"), in.say("took", "用时"),
		in.say("load before", "之前的负载"), in.say("commit", "提交"), in.say("form", "规模")}}
	add := func(name string, size string, date time.Time, took time.Duration, load string, m Machine) {
		t.add(in.name(name), date.Format("2006-01-02 15:04"), took.String(), load, m.Commit, in.name(size))
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
func (d *Document) Computers(in language) (all []string) {
	each(d, func(_, _ string, _ time.Time, _ time.Duration, _ string, m Machine) {
		text := in.say("%s, %d CPUs, %d GB of memory, Linux %s, %s", "%s，%d 个 CPU，%d GB 内存，Linux %s，%s",
			m.CPU, m.CPUs, m.MemoryGB, m.Kernel, m.Go)
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	})
	return all
}

// Versions are those of the peers.
func (d *Document) Versions(in language) string {
	var all []string
	each(d, func(_, _ string, _ time.Time, _ time.Duration, _ string, m Machine) {
		for name, version := range m.Peers {
			name = strings.TrimPrefix(name, "github.com/")
			if text := name + " " + version; !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	})
	slices.Sort(all)
	return strings.Join(all, in.say(", ", "、"))
}

// Whole reports whether all parts have the form that the document is for.
func (d *Document) Whole() bool {
	whole := true
	each(d, func(_, size string, _ time.Time, _ time.Duration, _ string, _ Machine) {
		whole = whole && size == Whole().Name
	})
	return whole
}
