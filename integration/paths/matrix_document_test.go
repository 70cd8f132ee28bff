package paths_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// matrixFile is the document. It has the paths that are not ok everywhere. okFile lists the others, because users need
// them rarely.
const matrixFile, okFile = "matrix.md", "README.md"

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

// copyKind gives a kind of key on an engine the results of another kind.
func (m *matrix) copyKind(column, kind, from int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lines {
		l.results[column][kind] = l.results[column][from]
	}
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
	if note = worst.text; note != "" && len(others) > 0 {
		note += " – only with keys of " + strings.Join(which, "; ")
	}
	return marks[worst.mark], note
}

// document writes matrixFile and okFile, or compares them.
func (m *matrix) document(t *testing.T) {
	if *update {
		for _, c := range matrixColumns {
			if !c.engine().Available() {
				t.Fatalf("-update needs all engines, and there is no %s: integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update", c.title)
			}
		}
		for file, text := range m.render() {
			testkit.Must(t, os.WriteFile(file, []byte(text), 0o644))
		}
		return
	}
	was, now := map[string][]string{}, map[string][]string{}
	for file, text := range m.render() {
		written, err := os.ReadFile(file)
		testkit.Must(t, err)
		maps.Copy(was, readMatrix(string(written)))
		maps.Copy(now, readMatrix(text))
	}
	for i, c := range matrixColumns {
		if !c.engine().Available() {
			continue
		}
		for path, cells := range now {
			if was[path] == nil {
				t.Errorf("neither %s nor %s has the line %q", matrixFile, okFile, path)
			} else if was[path][i] != cells[i] {
				t.Errorf("%s or %s says of %q on %s: %s; it is: %s", matrixFile, okFile, path, c.title, was[path][i], cells[i])
			}
		}
		for path := range was {
			if now[path] == nil {
				t.Errorf("%s or %s has the line %q, but there is no such path", matrixFile, okFile, path)
			}
		}
		if t.Failed() {
			t.Fatalf("write them again: integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update")
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

// render returns the text of each file.
func (m *matrix) render() map[string]string {
	var b, notes strings.Builder
	b.WriteString(matrixIntroduction)
	numbers := map[string]int{}
	var rows, fine strings.Builder // of the group, and all paths that are ok
	fine.WriteString(okIntroduction)
	ok := 0
	for i, l := range m.lines {
		if i == 0 || l.group != m.lines[i-1].group {
			fmt.Fprintf(&b, "\n## %s\n\n", l.group)
			fmt.Fprintf(&fine, "\n## %s\n\n", l.group)
			if l.note != "" {
				fmt.Fprintf(&b, "%s\n", l.note)
			}
			ok = 0
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
			fmt.Fprintf(&fine, "* %s\n", path)
			ok++
		} else {
			fmt.Fprintf(&rows, "| %s | %s |\n", path, results)
		}
		if last := i+1 == len(m.lines) || l.group != m.lines[i+1].group; last {
			fmt.Fprintf(&b, "Paths that are ok: %d.\n", ok)
			if rows.Len() > 0 {
				fmt.Fprintf(&b, "\n| path | result |\n|---|---|\n%s", rows.String())
				rows.Reset()
			}
		}
	}
	fmt.Fprintf(&b, "\n## %s\n\n| | |\n|---|---|\n%s", notesTitle, notes.String())
	return map[string]string{matrixFile: b.String(), okFile: fine.String()}
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
[Creating rows](../../docs/creating-rows.md). TestMatrix writes this page from the answers of the databases:

` + "```sh" + `
integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update
` + "```" + `

Without ` + "`-update`" + ` the test fails if an available database gives another result. Another
[list](README.md) names the paths that are ok on all databases. This page has the others.

* **ok**: the row has an id of the plugin. The struct or map has the same id, or none if a note mentions that. Foreign
  keys agree, and ` + "`RowsAffected`" + ` is the same as without the plugin.
* **refused**: the create returns an error that names the cause, and writes nothing. No transaction stays open, and the
  next create works.
* **as GORM**: a limit of GORM, which is the same without the plugin.
* **–**: the database does not have the feature.

A result without a database is the result on all others. The databases are SQLite, MariaDB, MariaDB with
` + "`DisableWithReturning: true`" + ` in the driver's configuration ("no RETURNING"), Oracle MySQL, and PostgreSQL. Keys are
` + "`int64`, `uint64` and `*int64`" + `, on AUTO_INCREMENT columns and on plain ones, ` + "`string` and `uidplugin.ID`" + `. If kinds of
keys differ, the worst result counts. ` + "`uint64`, and `*int64`" + ` on plain columns, run on SQLite only, because servers
get the same statements as with ` + "`int64`" + `. Numbers in brackets refer to the [notes](#notes).
`

const okIntroduction = `# Ways to create rows that are ok on all databases

TestMatrix writes this list. [matrix.md](matrix.md) has the other ways, and says what ok means.
`
