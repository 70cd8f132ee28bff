package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

func chinese(name string) bool { return name == "README_zh.md" || strings.HasPrefix(name, "docs/zh/") }

// inChinese returns the name that the Chinese page of an English one has.
func inChinese(name string) string {
	if name == "README.md" {
		return "README_zh.md"
	}
	return "docs/zh/" + strings.TrimPrefix(name, "docs/")
}

// Links of Chinese pages lead to Chinese pages where they exist. Otherwise they lead to the English page, and say so.
func TestChinese_LinksLeadToChinesePages(t *testing.T) {
	t.Parallel()
	all := byName(t)
	pairs := 0
	for name, english := range all {
		zh := all[inChinese(name)]
		if chinese(name) || zh == nil {
			continue
		}
		pairs++
		if !english.linksTo(t, zh.name) || !zh.linksTo(t, name) {
			t.Errorf("%s and %s do not link each other", name, zh.name)
		}
		zh.walk(func(n ast.Node) bool {
			link, ok := n.(*ast.Link)
			if !ok {
				return true
			}
			file, _, relative := zh.split(t, string(link.Destination))
			switch {
			case !relative || file == name || chinese(file) || all[file] == nil:
			case all[inChinese(file)] != nil:
				t.Errorf("%s links %s, and not its Chinese page", zh.name, file)
			case !saysEnglish(zh, link):
				t.Errorf("%s links %s without （英文）", zh.name, file)
			}
			return true
		})
	}
	for name := range all {
		if chinese(name) {
			pairs--
		}
	}
	if pairs != 0 {
		t.Error("a Chinese page has no English one")
	}
}

func (d *document) linksTo(t *testing.T, name string) bool {
	return slices.ContainsFunc(d.links(), func(link string) bool {
		file, _, relative := d.split(t, link)
		return relative && file == name
	})
}

// saysEnglish reports whether a link says that its page is in English, in its text or directly after it.
func saysEnglish(d *document, link *ast.Link) bool {
	const note = "（英文）"
	if strings.HasSuffix(d.text(link), note) {
		return true
	}
	next, ok := link.NextSibling().(*ast.Text)
	return ok && strings.HasPrefix(string(next.Segment.Value(d.source)), note)
}

// Tests run the SQL of English pages. The same SQL on Chinese pages is run with it.
func TestChinese_SameSQL(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`(?m)\s*--.*$`)
	all := byName(t)
	for name, english := range all {
		var sql [2][]string
		for i, d := range []*document{english, all[inChinese(name)]} {
			if d == nil || chinese(name) {
				sql[i] = sql[0]
				continue
			}
			for _, b := range d.blocks {
				if b.language == "sql" {
					sql[i] = append(sql[i], comment.ReplaceAllString(b.code, ""))
				}
			}
		}
		if !slices.Equal(sql[0], sql[1]) {
			t.Errorf("%s and its Chinese page have different SQL", name)
		}
	}
}
