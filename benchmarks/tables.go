package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// A place has the files of a run: the page, and the folders of its charts and of the results.
type place struct{ page, charts, results string }

// write writes the charts and the tables. If there is no page, as in a short run, it makes one without prose.
func write(dest place) error {
	if err := os.MkdirAll(dest.charts, 0o777); err != nil {
		return err
	}
	text, err := os.ReadFile(dest.page)
	page := string(text)
	if errors.Is(err, fs.ErrNotExist) {
		page = "# Figures of a short run\n"
		for _, name := range append(names(), "runs") {
			page += "\n## " + name + "\n\n" + marker(name) + endMarker + "\n"
		}
	} else if err != nil {
		return err
	}
	runs := table{{"part", "date (UTC)", "load before", "commit"}}
	var machines []string
	for _, p := range parts {
		run, text, err := p.render(dest)
		if err == nil && text != "" {
			page, err = fill(page, p.name, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if run != nil {
			runs.add(p.name, run.Date.Format("2006-01-02 15:04"), run.Load, run.Commit)
			if !slices.Contains(machines, run.Machine) {
				machines = append(machines, run.Machine)
			}
		}
	}
	if page, err = fill(page, "runs", strings.Join(machines, "\n\n")+"\n\n"+runs.String()); err != nil {
		return err
	}
	return os.WriteFile(dest.page, []byte(page), 0o666)
}

// marker returns the line before the generated text of a part. The line after this text is endMarker.
func marker(name string) string { return "<!-- table: " + name + " -->\n" }

const endMarker = "<!-- end -->"

func fill(page, name, text string) (string, error) {
	before, rest, begins := strings.Cut(page, marker(name))
	_, after, ends := strings.Cut(rest, endMarker)
	if !begins || !ends {
		return "", fmt.Errorf("the page needs the lines %q and %q", strings.TrimSpace(marker(name)), endMarker)
	}
	return before + marker(name) + "\n" + text + "\n" + endMarker + after, nil
}

// A table is a table in Markdown. Its first row is the head.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

func (t table) String() string {
	var b strings.Builder
	for i, row := range t {
		row = append(row, make([]string, len(t[0])-len(row))...)
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("| ---" + strings.Repeat(" | ---:", len(row)-1) + " |\n")
		}
	}
	return b.String()
}

// groups splits all into groups: consecutive items with the same key are one group.
func groups[T any, K comparable](all []T, key func(T) K) (groups [][]T) {
	for i, one := range all {
		if i == 0 || key(one) != key(all[i-1]) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], one)
	}
	return groups
}

// number writes a number with three significant digits, and commas between thousands.
func number(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return humanize.Commaf(rounded)
}

// String writes a figure with its spread.
func (f Figure) String() string {
	if f.Noisy || f.Low == f.High {
		return f.median()
	}
	return fmt.Sprintf("%s (%s–%s)", number(f.Median), number(f.Low), number(f.High))
}

// median writes a figure without its spread.
func (f Figure) median() string {
	if f.Noisy {
		return number(f.Median) + " (noisy)"
	}
	return number(f.Median)
}

func percent(part, whole int) string {
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(max(1, whole)))
}
