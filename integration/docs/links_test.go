package docs_test

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// links returns the targets of the links and pictures of a document, those in HTML too.
func (d *document) links() (all []string) {
	html := func(s string) {
		for _, m := range regexp.MustCompile(`(?:href|src|srcset)="([^"]+)"`).FindAllStringSubmatch(s, -1) {
			all = append(all, m[1])
		}
	}
	d.walk(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Link:
			all = append(all, string(n.Destination))
		case *ast.Image:
			all = append(all, string(n.Destination))
		case *ast.RawHTML:
			html(string(n.Segments.Value(d.source)))
		case *ast.HTMLBlock:
			html(string(n.Lines().Value(d.source)))
		}
		return true
	})
	return all
}

// anchors returns the names that GitHub gives the headings of a document.
func (d *document) anchors() map[string]bool {
	all, times := map[string]bool{}, map[string]int{}
	d.walk(func(n ast.Node) bool {
		if n.Kind() != ast.KindHeading {
			return true
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
				return unicode.ToLower(r)
			}
			return -1
		}, d.text(n))
		if n := times[name]; n > 0 {
			all[name+"-"+strconv.Itoa(n)] = true
		} else {
			all[name] = true
		}
		times[name]++
		return false
	})
	return all
}

// split returns the file that a relative link of a document leads to, from the root on, and the anchor.
func (d *document) split(t *testing.T, link string) (file, anchor string, relative bool) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Errorf("%s: the link %q: %v", d.name, link, err)
		return "", "", false
	}
	if u.IsAbs() {
		return "", "", false
	}
	if u.Path == "" {
		return d.name, u.Fragment, true
	}
	return path.Join(path.Dir(d.name), u.Path), u.Fragment, true
}

func TestLinks_LeadSomewhere(t *testing.T) {
	t.Parallel()
	byName := byName(t)
	found := 0
	each(t, func(t *testing.T, d *document) {
		for _, link := range d.links() {
			file, anchor, relative := d.split(t, link)
			if !relative {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s: the link %s: no such file", d.name, link)
			} else if target := byName[file]; anchor != "" && (target == nil || !target.anchors()[anchor]) {
				t.Errorf("%s: the link %s: %s has no such heading", d.name, link, file)
			}
		}
	})
	if found < 100 {
		t.Errorf("%d links: they are not found", found)
	}
}

// A page that no other page names is not read.
func TestLinks_EveryPageIsReachedFromTheIndex(t *testing.T) {
	t.Parallel()
	byName := byName(t)
	reached := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		d := byName[name]
		if d == nil || reached[name] || !strings.HasPrefix(name, "docs/") {
			return
		}
		reached[name] = true
		for _, link := range d.links() {
			if file, _, relative := d.split(t, link); relative {
				visit(file)
			}
		}
	}
	visit("docs/README.md")
	for name := range byName {
		if strings.HasPrefix(name, "docs/") && !reached[name] {
			t.Errorf("%s is not reached from docs/README.md", name)
		}
	}
}

// The control: a heading has the anchor that GitHub gives it.
func TestLinks_AnchorsOfHeadings(t *testing.T) {
	t.Parallel()
	d := parse("a.md", []byte("# `A`, b & C_d\n\n## Twice\n\n## Twice\n\n## 布局：位数\n\n[x](#a) <a href=\"b.md\">b</a>\n"))
	for _, want := range []string{"a-b--c_d", "twice", "twice-1", "布局位数"} {
		if !d.anchors()[want] {
			t.Errorf("no anchor %q in %v", want, d.anchors())
		}
	}
	if links := d.links(); len(links) != 2 || links[0] != "#a" || links[1] != "b.md" {
		t.Errorf("links %q", links)
	}
}
