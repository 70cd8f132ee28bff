package paths_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// matrixFile is the document.
const matrixFile = "../../docs/paths.md"

// notesTitle is the heading of the notes.
const notesTitle = "Notes"

// matrix collects the results of all lanes.
type matrix struct {
	mu    sync.Mutex
	lines []*matrixLine // as groups has them
}

// A matrixLine has the results of a path.
type matrixLine struct {
	group, note, path string
	results           [][]result // by column and kind of key
}

func newMatrix() *matrix {
	m := &matrix{}
	for _, g := range groups[int64]() {
		for _, p := range g.paths {
			l := &matrixLine{group: g.title, note: g.note, path: p.name}
			for range matrixColumns {
				l.results = append(l.results, make([]result, len(keyKinds)))
			}
			m.lines = append(m.lines, l)
		}
	}
	return m
}

func (m *matrix) add(group, path string, column, kind int, r result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.lines, func(l *matrixLine) bool { return l.group == group && l.path == path })
	m.lines[i].results[column][kind] = r
}

// marks is how the document writes results.
var marks = map[mark]string{absent: "–", right: "ok", asGORM: "as GORM", refused: "refused", wrong: "WRONG"}

// cell returns the worst result of a path on an engine over the kinds of keys,
// and the footnote that explains it.
func (l *matrixLine) cell(column int) (text, note string) {
	worst := result{}
	for _, r := range l.results[column] {
		if r.mark > worst.mark || r.mark == worst.mark && worst.text == "" {
			worst = r
		}
	}
	var which, others []string
	for k, r := range l.results[column] {
		switch {
		case r.mark == absent:
		case r.mark == worst.mark && (r.text != "") == (worst.text != ""):
			which = append(which, keyKinds[k].name)
		default:
			others = append(others, keyKinds[k].name)
		}
	}
	if note = worst.text; note != "" && worst.mark == refused {
		note = "`" + note + "`" // the text of an error
	}
	if note != "" && len(others) > 0 {
		note += " – only with keys of " + strings.Join(which, "; ")
	}
	return marks[worst.mark], note
}

// document writes docs/paths.md, or compares it.
func (m *matrix) document(t *testing.T) {
	if *update {
		for _, c := range matrixColumns {
			if !c.engine().Available() {
				t.Fatalf("-update needs all engines, and there is no %s: integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update", c.title)
			}
		}
		if err := os.WriteFile(matrixFile, []byte(m.render()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	was, now := readMatrix(string(text)), readMatrix(m.render())
	for i, c := range matrixColumns {
		if !c.engine().Available() {
			continue
		}
		for path, cells := range now {
			if was[path] == nil {
				t.Errorf("%s has no line %q", matrixFile, path)
			} else if was[path][i] != cells[i] {
				t.Errorf("%s says of %q on %s: %s; it is: %s", matrixFile, path, c.title, was[path][i], cells[i])
			}
		}
		for path := range was {
			if now[path] == nil {
				t.Errorf("%s has a line %q, and there is no such path", matrixFile, path)
			}
		}
		if t.Failed() {
			t.Fatalf("write it anew: go test ./integration/paths -run TestMatrix -update")
		}
	}
}

// readMatrix returns the cells of each path of a document, with the text of each footnote instead of its number.
func readMatrix(text string) map[string][]string {
	notes, lines := map[string]string{}, map[string][]string{}
	group := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			group = title
		}
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "¦"), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if _, err := strconv.Atoi(cells[0]); err == nil && len(cells) == 2 && group == notesTitle {
			notes["["+cells[0]+"]"] = cells[1]
		}
		if path, ok := strings.CutPrefix(line, "* "); ok && group != "" {
			lines[group+": "+path] = splitResults(marks[right])
		}
		if strings.HasPrefix(line, "|") && len(cells) == 2 && group != notesTitle && !strings.HasPrefix(line, "|-") && cells[0] != "path" {
			lines[group+": "+cells[0]] = splitResults(cells[1])
		}
	}
	for _, cells := range lines {
		for i, c := range cells {
			mark, number, ok := strings.Cut(c, " [")
			if ok {
				cells[i] = mark + " (" + notes["["+number] + ")"
			}
		}
	}
	return lines
}

func (m *matrix) render() string {
	var b, notes strings.Builder
	b.WriteString(matrixIntroduction)
	numbers := map[string]int{}
	var rows strings.Builder // of the table of the group
	for i, l := range m.lines {
		if i == 0 || l.group != m.lines[i-1].group {
			fmt.Fprintf(&b, "\n## %s\n\n", l.group)
			if l.note != "" {
				fmt.Fprintf(&b, "%s\n\n", l.note)
			}
		}
		var cells []string
		for i := range matrixColumns {
			mark, note := l.cell(i)
			if note != "" {
				if numbers[note] == 0 {
					numbers[note] = len(numbers) + 1
					fmt.Fprintf(&notes, "| %d | %s |\n", numbers[note], strings.ReplaceAll(note, "|", `\|`))
				}
				mark += fmt.Sprintf(" [%d]", numbers[note])
			}
			cells = append(cells, mark)
		}
		path := strings.ReplaceAll(l.path, "|", `\|`)
		if results := joinResults(cells); results == marks[right] {
			fmt.Fprintf(&b, "* %s\n", path)
		} else {
			fmt.Fprintf(&rows, "| %s | %s |\n", path, results)
		}
		if last := i+1 == len(m.lines) || l.group != m.lines[i+1].group; last && rows.Len() > 0 {
			fmt.Fprintf(&b, "\n| path | result |\n|---|---|\n%s", rows.String())
			rows.Reset()
		}
	}
	fmt.Fprintf(&b, "\n## %s\n\n| | |\n|---|---|\n%s", notesTitle, notes.String())
	return b.String()
}

// joinResults writes the most frequent result of a path, and the other results with their databases.
func joinResults(cells []string) string {
	databases := map[string][]string{}
	for i, c := range cells {
		databases[c] = append(databases[c], matrixColumns[i].title)
	}
	results := slices.Compact(slices.Clone(cells))
	slices.SortStableFunc(results, func(a, b string) int { return len(databases[b]) - len(databases[a]) })
	var b strings.Builder
	b.WriteString(results[0])
	for i, r := range results {
		if i > 0 && !slices.Contains(results[:i], r) {
			b.WriteString("; " + r + " on " + strings.Join(databases[r], " / "))
		}
	}
	return b.String()
}

// splitResults returns what joinResults was given.
func splitResults(text string) []string {
	results := strings.Split(text, "; ")
	cells := slices.Repeat(results[:1], len(matrixColumns))
	for _, r := range results[1:] {
		mark, databases, _ := strings.Cut(r, " on ")
		for i, c := range matrixColumns {
			if slices.Contains(strings.Split(databases, " / "), c.title) {
				cells[i] = mark
			}
		}
	}
	return cells
}

const matrixIntroduction = `# Ways to create rows, tested

Look up here which id a row gets, for each way in which GORM creates rows, on each database. The cases to know are in
[Creating rows](creating-rows.md). TestMatrix writes this page from the answers of the databases:

` + "```sh" + `
integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update
` + "```" + `

Without ` + "`-update`" + ` the test fails if an available database gives a result that is not on this page.

* **ok**, also for all paths in lists: the row has an id of the plugin. The struct or map has the same id, or none if a
  note mentions that. Foreign keys agree, and ` + "`RowsAffected`" + ` is the same as without the plugin.
* **refused**: the create returns an error and writes nothing. No transaction stays open, and the next create works.
* **as GORM**: a limit of GORM, which is the same without the plugin.
* **–**: the database does not have the feature.

A result without a database is the result on all others. The databases are SQLite, MariaDB, MariaDB with
` + "`DisableWithReturning: true`" + ` in the driver's configuration ("no RETURNING"), Oracle MySQL, and PostgreSQL. Keys are
` + "`int64`, `uint64` and `*int64`" + `, on AUTO_INCREMENT columns and on plain ones, ` + "`string` and `uidplugin.ID`" + `. If kinds of
keys differ, the worst result counts. Numbers in brackets refer to the [notes](#notes).
`
