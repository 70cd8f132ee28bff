package docs_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// onlyEnglish are the documents without a Chinese page, and why.
var onlyEnglish = map[string]string{
	"CHANGELOG.md":         "a list that grows with each change",
	"docs/architecture.md": "for contributors, who read the comments of the code anyway",
	"docs/chaos.md":        "a record of one run",
	"docs/logs.md":         "the lines of the log are in English, and a test compares them with the source",
	"docs/paths.md":        "a table that a test writes",
	"docs/testing.md":      "for contributors",
}

// chinese reports whether a document is in Chinese.
func chinese(name string) bool { return name == "README_zh.md" || strings.HasPrefix(name, "docs/zh/") }

// inChinese returns the name of the Chinese page of an English one.
func inChinese(name string) string {
	if name == "README.md" {
		return "README_zh.md"
	}
	return "docs/zh/" + strings.TrimPrefix(name, "docs/")
}

// eachPair calls f for each document that is in both languages, in a subtest.
func eachPair(t *testing.T, f func(t *testing.T, english, zh *document)) {
	t.Helper()
	all, err := documents()
	must(t, err)
	pairs := 0
	for _, d := range all {
		i := slices.IndexFunc(all, func(other *document) bool { return other.name == inChinese(d.name) })
		if chinese(d.name) || i < 0 {
			continue
		}
		pairs++
		t.Run(d.name, func(t *testing.T) { f(t, d, all[i]) })
	}
	if pairs < 20 {
		t.Errorf("%d documents in both languages: they are not found", pairs)
	}
}

// Whoever reads Chinese finds every page that a user needs.
func TestChinese_EachPageHasItsCounterpart(t *testing.T) {
	t.Parallel()
	all, err := documents()
	must(t, err)
	names := map[string]bool{}
	for _, d := range all {
		names[d.name] = true
	}
	for name := range names {
		switch {
		case chinese(name):
			english := strings.Replace(name, "docs/zh/", "docs/", 1)
			if name == "README_zh.md" {
				english = "README.md"
			}
			if !names[english] {
				t.Errorf("%s has no English page %s", name, english)
			}
		case onlyEnglish[name] != "" && names[inChinese(name)]:
			t.Errorf("%s is in onlyEnglish, but %s exists", name, inChinese(name))
		case onlyEnglish[name] == "" && !names[inChinese(name)]:
			t.Errorf("%s has no Chinese page %s: write it, or say in onlyEnglish why not", name, inChinese(name))
		}
	}
	for name := range onlyEnglish {
		if !names[name] {
			t.Errorf("onlyEnglish has %s, which does not exist", name)
		}
	}
}

// A reader of a Chinese page stays among Chinese pages, and finds the English one.
func TestChinese_LinksLeadToChinesePages(t *testing.T) {
	t.Parallel()
	all, err := documents()
	must(t, err)
	byName := map[string]*document{}
	for _, d := range all {
		byName[d.name] = d
	}
	eachPair(t, func(t *testing.T, english, zh *document) {
		zh.walk(func(n ast.Node) bool {
			link, ok := n.(*ast.Link)
			if !ok {
				return true
			}
			file, _, relative := zh.split(t, string(link.Destination))
			if !relative || file == english.name || chinese(file) || byName[file] == nil {
				return true
			}
			if byName[inChinese(file)] != nil {
				t.Errorf("%s links %s, and not its Chinese page", zh.name, file)
			} else if !saysEnglish(zh, link) {
				t.Errorf("%s links %s without （英文）", zh.name, file)
			}
			return true
		})
		files := zh.linked(t)
		if !files[english.name] || !english.linked(t)[zh.name] {
			t.Errorf("%s and %s do not link each other", zh.name, english.name)
		}
		for file := range english.linked(t) {
			if _, err := os.Stat(root + "/" + inChinese(file)); err == nil && !chinese(file) {
				file = inChinese(file)
			}
			if !files[file] && file != zh.name && file != english.name {
				t.Errorf("%s links %s, but %s does not", english.name, file, zh.name)
			}
		}
	})
}

// The indexes lead to each other, and docs/zh/README.md to each Chinese page.
func TestChinese_EachPageIsReachedFromTheChineseIndex(t *testing.T) {
	t.Parallel()
	all, err := documents()
	must(t, err)
	byName := map[string]*document{}
	for _, d := range all {
		byName[d.name] = d
	}
	for _, way := range [][2]string{
		{"README.md", "README_zh.md"}, {"README_zh.md", "docs/zh/README.md"}, {"docs/README.md", "docs/zh/README.md"},
	} {
		if !byName[way[0]].linked(t)[way[1]] {
			t.Errorf("%s does not link %s", way[0], way[1])
		}
	}
	reached := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if reached[name] || byName[name] == nil || !chinese(name) {
			return
		}
		reached[name] = true
		for file := range byName[name].linked(t) {
			visit(file)
		}
	}
	visit("docs/zh/README.md")
	for name := range byName {
		if strings.HasPrefix(name, "docs/zh/") && !reached[name] {
			t.Errorf("%s is not reached from docs/zh/README.md", name)
		}
	}
}

// linked returns the files that the links and pictures of a document lead to.
func (d *document) linked(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, link := range d.links() {
		if file, _, relative := d.split(t, link); relative {
			files[path.Clean(file)] = true
		}
	}
	return files
}

// saysEnglish reports whether a link says that its page is in English, in its text or directly after it.
func saysEnglish(d *document, link *ast.Link) bool {
	const note = "（英文）"
	var short, full strings.Builder
	d.inline(link, &short, &full)
	if strings.HasSuffix(full.String(), note) {
		return true
	}
	next, ok := link.NextSibling().(*ast.Text)
	return ok && strings.HasPrefix(string(next.Segment.Value(d.source)), note)
}
