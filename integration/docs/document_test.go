// Package docs_test checks the documents of the repository: links, words, and the code that they show. It is a module of
// its own: users of uidplugin do not need what reads Markdown.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// root is the folder of the repository.
const root = "../.."

// TestMain keeps the go command from caching results. It would not notice that a document has changed, because it looks
// only at files of the module of a test. It caches no result of a test that has read a file of the last two seconds.
// So tests read go.mod, which is new afterwards.
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

// documents returns all documents: those of the root, of docs and of its folders.
var documents = sync.OnceValues(func() ([]*document, error) {
	if _, err := os.ReadFile("go.mod"); err != nil { // see TestMain
		return nil, err
	}
	var all []*document
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
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
	eachOf(t, func(*document) bool { return true }, f)
}

// eachOf calls f for each document that wanted reports true for, in a subtest.
func eachOf(t *testing.T, wanted func(d *document) bool, f func(t *testing.T, d *document)) {
	t.Helper()
	all, err := documents()
	must(t, err)
	for _, d := range all {
		if wanted(d) {
			t.Run(d.name, func(t *testing.T) { f(t, d) })
		}
	}
}

// eachEnglish calls f for each document that is in English.
func eachEnglish(t *testing.T, f func(t *testing.T, d *document)) {
	t.Helper()
	eachOf(t, func(d *document) bool { return !chinese(d.name) }, f)
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

// fenced returns the fenced code of a document.
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

// code stands for a span of code in the text of a document. It counts as one word, and may begin a sentence.
const code = "\x01"

// A passage is a paragraph, a heading, an item of a list or a cell of a table.
type passage struct {
	text string // spans of code are [code]
	full string // spans of code have their text
	cell bool   // of a table
	line int
}

// passages returns the text of a document, without fenced code.
func (d *document) passages() (all []passage) {
	line := 1
	d.walk(func(n ast.Node) bool {
		if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
			line = d.line(n.Lines().At(0).Start)
		}
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock, ast.KindHeading, tables.KindTableCell:
			p := passage{cell: n.Kind() == tables.KindTableCell, line: line}
			var short, full strings.Builder
			d.inline(n, &short, &full)
			p.text, p.full = short.String(), full.String()
			all = append(all, p)
			return false
		}
		return true
	})
	return all
}

// inline writes the text of the inline nodes below n.
func (d *document) inline(n ast.Node, short, full *strings.Builder) {
	both := func(s string) { short.WriteString(s); full.WriteString(s) }
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			both(string(c.Segment.Value(d.source)))
			if c.SoftLineBreak() || c.HardLineBreak() {
				both(" ")
			}
		case *ast.String:
			both(string(c.Value))
		case *ast.AutoLink:
			both(code)
		case *ast.CodeSpan:
			short.WriteString(code)
			var ignored strings.Builder
			d.inline(c, &ignored, full)
		default:
			d.inline(c, short, full)
		}
	}
}

var (
	sentenceEnd = regexp.MustCompile(`[.!?][")*]*\s+`)
	entity      = regexp.MustCompile(`&[a-z]+;`)
)

// sentences splits a text where a full stop is followed by a capital letter or a span of code.
func sentences(s string) (all []string) {
	s = entity.ReplaceAllString(s, " ")
	begin := 0
	for _, at := range sentenceEnd.FindAllStringIndex(s, -1) {
		next := strings.TrimLeft(s[at[1]:], `"(*`)
		if next != "" && (unicode.IsUpper([]rune(next)[0]) || strings.HasPrefix(next, code)) {
			all, begin = append(all, strings.TrimSpace(s[begin:at[1]])), at[1]
		}
	}
	return append(all, strings.TrimSpace(s[begin:]))
}

// words counts the words of a text.
func words(s string) (n int) {
	for _, word := range strings.Fields(entity.ReplaceAllString(s, " ")) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\x01' }) {
			n++
		}
	}
	return n
}
