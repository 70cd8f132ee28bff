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

// matrix collects the results of all lanes.
type matrix struct {
	mu    sync.Mutex
	lines []*matrixLine // as groups has them
}

// A matrixLine is what is known of a path.
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

// readMatrix returns the cells of each path of a document, each with its footnote
// instead of the footnote's number.
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
		if _, err := strconv.Atoi(cells[0]); err == nil && len(cells) == 2 {
			notes["["+cells[0]+"]"] = cells[1]
		}
		if strings.HasPrefix(line, "|") && len(cells) == len(matrixColumns)+1 && !strings.HasPrefix(line, "|-") && !strings.HasPrefix(line, "| path") {
			lines[group+": "+cells[0]] = cells[1:]
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
	group := ""
	for _, l := range m.lines {
		if l.group != group {
			group = l.group
			fmt.Fprintf(&b, "\n## %s\n\n", group)
			if l.note != "" {
				fmt.Fprintf(&b, "%s\n\n", l.note)
			}
			b.WriteString("| path |")
			for _, c := range matrixColumns {
				fmt.Fprintf(&b, " %s |", c.title)
			}
			b.WriteString("\n|---|" + strings.Repeat("---|", len(matrixColumns)) + "\n")
		}
		fmt.Fprintf(&b, "| %s |", strings.ReplaceAll(l.path, "|", `\|`))
		for i := range matrixColumns {
			mark, note := l.cell(i)
			if note != "" {
				if numbers[note] == 0 {
					numbers[note] = len(numbers) + 1
					fmt.Fprintf(&notes, "| %d | %s |\n", numbers[note], strings.ReplaceAll(note, "|", `\|`))
				}
				mark += fmt.Sprintf(" [%d]", numbers[note])
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n## Notes\n\n| | |\n|---|---|\n%s", notes.String())
	return b.String()
}

const matrixIntroduction = `# Ways to create rows, tested

Each table says what becomes of fields with the tag ` + "`uid`" + ` in the ways in which GORM creates rows, on each database.
[Creating rows](creating-rows.md) has what you need to know of it. ` + "`TestMatrix`" + ` writes this page from what the databases
answer.

* **ok**: the row has an id of the plugin. The struct or map has the same id, or none where a note says so. Foreign keys
  in structs and rows agree. ` + "`RowsAffected`" + ` is the same as without the plugin.
* **refused**: an error says what to do. Nothing is written, no transaction is left open, and the next create works.
* **as GORM**: GORM's own limit, with the plugin and without it. The test compares both.
* **–**: the database does not have it.

A number in brackets refers to the notes at the end. Where kinds of keys differ, the worst result counts, and its note
names the kinds. In short:

* Give ` + "`Create`" + ` pointers or slices. A struct by value cannot get an id.
* Create from maps with ` + "`Model(&T{})`" + `. Without a model neither GORM nor the plugin knows that there is a key. In raw
  SQL, use ` + "`plugin.NextID`" + `.
* After an upsert look at the key of the struct. It is zero if the row existed already and nothing said under which id.
  It is never an id that no row has.
* List your models in ` + "`WithModels`" + ` if the first create of a table may come inside a transaction.

The columns are SQLite, MariaDB with RETURNING, MariaDB with ` + "`DisableWithReturning: true`" + ` in the driver's configuration,
Oracle MySQL, and PostgreSQL. The kinds of keys are ` + "`int64`" + `, ` + "`uint64`" + ` and ` + "`*int64`" + `, each on AUTO_INCREMENT columns and
on plain ones, ` + "`string`" + ` and ` + "`uidplugin.ID`" + `.

To write this page again:

` + "```sh" + `
integration/servers.sh run -- go test ./integration/paths -run TestMatrix -update
` + "```" + `

Without ` + "`-update`" + ` the test fails if an available database does something else than this page says.
`
