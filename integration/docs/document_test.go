// Package docs_test checks the documents of the repository: links, and the code that they show. It is a module of its
// own, because users of uidplugin do not need a reader of Markdown.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// root is the folder of the repository.
const root = "../.."

// TestMain keeps the go command from caching results, because it looks only at files of the module of a test, and would
// not notice that a document has changed. It caches no result of a test that has read a file of the last two seconds.
// So TestMain renews go.mod, and tests read it.
func TestMain(m *testing.M) {
	code := m.Run()
	now := time.Now()
	_ = os.Chtimes("go.mod", now, now)
	os.Exit(code)
}

// A document is a Markdown file.
type document struct {
	name   string // from the root on, such as docs/order.md
	source []byte
	tree   ast.Node
	blocks []block // its fenced code
}

// A block is fenced code.
type block struct {
	language, code string
	line           int
}

// documents returns all documents: those of the root, of docs and of its folders, and about the tests.
var documents = sync.OnceValues(func() ([]*document, error) {
	if _, err := os.ReadFile("go.mod"); err != nil { // see TestMain
		return nil, err
	}
	var all []*document
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "integration/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			d, err := read(file)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	}
	if len(all) < 10 {
		return nil, fmt.Errorf("only %d documents in %s", len(all), root)
	}
	return all, nil
})

func read(file string) (*document, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, file)
	if err != nil {
		return nil, err
	}
	return parse(filepath.ToSlash(name), source), nil
}

func parse(name string, source []byte) *document {
	parser := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser()
	d := &document{name: name, source: source, tree: parser.Parse(text.NewReader(source))}
	d.blocks = d.fenced() // here, because goldmark remembers languages in the tree, which all tests share
	return d
}

// each calls f for each document in a subtest.
func each(t *testing.T, f func(t *testing.T, d *document)) {
	t.Helper()
	all, err := documents()
	must(t, err)
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) { f(t, d) })
	}
}

func byName(t *testing.T) map[string]*document {
	t.Helper()
	all, err := documents()
	must(t, err)
	names := map[string]*document{}
	for _, d := range all {
		names[d.name] = d
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// walk calls f for each node of a document, from the top on, until f returns false for its subtree.
func (d *document) walk(f func(n ast.Node) (into bool)) {
	_ = ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering && !f(n) {
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
}

// line returns the number of the line that has an offset of the source.
func (d *document) line(offset int) int { return 1 + strings.Count(string(d.source[:offset]), "\n") }

func (d *document) fenced() (all []block) {
	d.walk(func(n ast.Node) bool {
		if n, ok := n.(*ast.FencedCodeBlock); ok {
			b := block{language: string(n.Language(d.source)), code: string(n.Lines().Value(d.source))}
			if n.Lines().Len() > 0 {
				b.line = d.line(n.Lines().At(0).Start)
			}
			all = append(all, b)
		}
		return true
	})
	return all
}

// text returns the text of the inline nodes below n.
func (d *document) text(n ast.Node) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if n, ok := n.(*ast.Text); ok && entering {
			out.Write(n.Segment.Value(d.source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}
