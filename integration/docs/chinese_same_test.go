package docs_test

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
)

// onlyChinese are the sections that only a Chinese page has, and why.
var onlyChinese = map[string]map[string]string{
	"docs/zh/faq.md": {
		"时钟回拨怎么办？":                "the first question of who knows snowflakes from Chinese articles",
		"要单独部署发号服务或 ZooKeeper 吗？": "Leaf needs both",
	},
}

// sameNumbers are numbers that are written differently in Chinese: the parts of the pages that stand for each other.
var sameNumbers = [][2]string{
	{"9.6 million", "960 万"}, // Chinese counts in units of 10,000
}

// What is changed in one language is changed in the other one: sections, rows of tables, and pictures of code.
func TestChinese_SameStructure(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, english, zh *document) {
		want, have := english.shape(nil), zh.shape(onlyChinese[zh.name])
		if !slices.Equal(want, have) {
			t.Errorf("%s and %s have other sections, tables or code:\n%q\n%q", english.name, zh.name, want, have)
		}
	})
	for name, titles := range onlyChinese {
		d, err := read(root + "/" + name)
		must(t, err)
		for title := range titles {
			if !slices.ContainsFunc(d.passages(), func(p passage) bool { return p.full == title }) {
				t.Errorf("onlyChinese: %s has no section %s", name, title)
			}
		}
	}
}

// shape returns what a document consists of: headings, tables, code, lists and their items. It leaves sections out.
func (d *document) shape(without map[string]string) (all []string) {
	d.walk(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Heading:
			var short, full strings.Builder
			d.inline(n, &short, &full)
			if without[full.String()] == "" {
				all = append(all, fmt.Sprintf("h%d", n.Level))
			}
		case *tables.Table:
			all = append(all, fmt.Sprintf("table of %d", n.ChildCount()))
		case *ast.FencedCodeBlock:
			all = append(all, string(n.Language(d.source)))
		case *ast.List:
			all = append(all, fmt.Sprintf("list of %d", n.ChildCount()))
		case *ast.Image:
			all = append(all, "picture")
		}
		return true
	})
	return all
}

// Code is the same in both languages but for comments. Blocks of text, such as pictures, have the same numbers.
func TestChinese_SameCode(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, english, zh *document) {
		theirs := zh.blocks
		for i, b := range english.blocks {
			if i >= len(theirs) { // TestChinese_SameStructure says so
				return
			}
			if want, have := b.bare(), theirs[i].bare(); want != have {
				t.Errorf("%s:%d and %s:%d are different code:\n%s\n%s", english.name, b.line, zh.name, theirs[i].line, want, have)
			}
		}
	})
}

// bare returns what must be the same in all languages.
func (b block) bare() string {
	comment := map[string]*regexp.Regexp{
		"sh": regexp.MustCompile(`(?m)(^|\s+)# .*$`), "sql": regexp.MustCompile(`(?m)\s*--.*$`),
	}[b.language]
	switch {
	case b.language == "text":
		return fmt.Sprint(numbers(b.code))
	case comment != nil:
		return comment.ReplaceAllString(b.code, "")
	case b.language != "go":
		return b.code
	}
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(b.code)), []byte(b.code), nil, 0)
	var out strings.Builder
	for {
		_, kind, text := s.Scan()
		if kind == token.EOF {
			return out.String()
		}
		out.WriteString(cmp.Or(text, kind.String()) + " ")
	}
}

// A picture is the same in both languages but for its text, whose numbers are the same.
func TestChinese_SamePictures(t *testing.T) {
	t.Parallel()
	pictures, err := filepath.Glob(root + "/docs/zh/*.svg")
	must(t, err)
	if len(pictures) == 0 {
		t.Error("no pictures")
	}
	for _, name := range pictures {
		zh, err := os.ReadFile(name)
		must(t, err)
		english, err := os.ReadFile(filepath.Join(root, "docs", filepath.Base(name)))
		must(t, err)
		theirs, texts := drawing(string(zh))
		ours, wants := drawing(string(english))
		if ours != theirs {
			t.Errorf("%s is drawn differently in English", name)
		}
		for i := range min(len(wants), len(texts)) {
			if want, have := numbers(wants[i]), numbers(texts[i]); !slices.Equal(want, have) {
				t.Errorf("%s: %q has other numbers than %q", name, texts[i], wants[i])
			}
		}
	}
}

var svgText = regexp.MustCompile(`(?s)(<(?:text|title|desc)\b[^>]*>)([^<]*)<`)

// drawing returns what a picture draws, without its text and the names of fonts, and its texts.
func drawing(svg string) (lines string, texts []string) {
	for _, m := range svgText.FindAllStringSubmatch(svg, -1) {
		texts = append(texts, m[2])
	}
	svg = regexp.MustCompile(`font: [^}]*?[;}]`).ReplaceAllString(svg, "")
	return svgText.ReplaceAllString(svg, "$1<"), texts
}

var number = regexp.MustCompile(`(?:^|[^A-Za-z\d.,])(\d+(?:[.,]\d+)*)`)

// numbers returns the numbers of a text, sorted. Digits in words, such as UUIDv7, are none.
func numbers(text string) (all []string) {
	for text != "" {
		at := number.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		all, text = append(all, text[at[2]:at[3]]), text[at[3]:]
	}
	slices.Sort(all)
	return all
}

// numbers returns the numbers of a document outside of code, each as often as it comes. Those of sameNumbers are equal.
func (d *document) numbers(language int) []string {
	var out strings.Builder
	for _, p := range d.passages() {
		out.WriteString(p.text + "\n")
	}
	text := out.String()
	for i, same := range sameNumbers {
		text = strings.ReplaceAll(text, same[language], fmt.Sprintf(" 0.00%d ", i)) // a number that no page has
	}
	return numbers(text)
}

// A figure that is corrected in one language only misleads the readers of the other one.
func TestChinese_SameNumbers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, english, zh *document) {
		want, have := english.numbers(0), zh.numbers(1)
		for _, n := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(want, have)))) {
			if w, h := count(want, n), count(have, n); w != h {
				t.Errorf("%s has %s %d times, %s %d times", english.name, n, w, zh.name, h)
			}
		}
	})
}

func count(all []string, s string) (n int) {
	for _, other := range all {
		if other == s {
			n++
		}
	}
	return n
}

// The names that an English page has in code, such as options and errors, are on the Chinese page too.
func TestChinese_SameNames(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, english, zh *document) {
		have := zh.spans()
		for name := range english.spans() {
			if !have[name] {
				t.Errorf("%s has `%s`, %s does not", english.name, name, zh.name)
			}
		}
	})
}

// spans returns the spans of code of a document.
func (d *document) spans() map[string]bool {
	all := map[string]bool{}
	d.walk(func(n ast.Node) bool {
		if span, ok := n.(*ast.CodeSpan); ok {
			var short, full strings.Builder
			d.inline(span, &short, &full)
			all[full.String()] = true
		}
		return true
	})
	return all
}

// The glossary has every English word, so that one can look up a word of the log.
func TestChinese_SameGlossary(t *testing.T) {
	t.Parallel()
	english, err := read(root + "/docs/glossary.md")
	must(t, err)
	zh, err := read(root + "/docs/zh/glossary.md")
	must(t, err)
	if want, have := english.column(0), zh.column(1); !slices.Equal(want[1:], have[1:]) {
		t.Errorf("the words of the glossaries:\n%q\n%q", want, have)
	}
}

// column returns the cells of a column of all tables of a document.
func (d *document) column(i int) (all []string) {
	d.walk(func(n ast.Node) bool {
		if n.Kind() != tables.KindTableRow && n.Kind() != tables.KindTableHeader {
			return true
		}
		cell := n.FirstChild()
		for range i {
			cell = cell.NextSibling()
		}
		var short, full strings.Builder
		d.inline(cell, &short, &full)
		all = append(all, full.String())
		return false
	})
	return all
}

// The control: pages that differ are noticed.
func TestChinese_DifferencesAreNoticed(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(numbers("1,456 UUIDv7 2026-11-22 10^18, 6.6 到 10 秒。40/19/4"))
	if got != "[1,456 10 10 11 18 19 2026 22 4 40 6.6]" {
		t.Errorf("numbers %s", got)
	}
	for language, codes := range map[string][3]string{ // the same, and different
		"go":   {"a := 1 // one\nb()", "a := 1 // 一\nb()", "a := 2 // one\nb()"},
		"sh":   {"make test # all\n", "make test # 全部\n", "make check # all\n"},
		"sql":  {"-- MySQL\nSELECT 1;", "-- 数据库\nSELECT 1;", "-- MySQL\nSELECT 2;"},
		"text": {"time, 41 bits", "时间，41 位", "时间，40 位"},
		"json": {"{}", "{}", "[]"},
	} {
		bare := func(i int) string { return block{language: language, code: codes[i]}.bare() }
		if bare(0) != bare(1) || bare(0) == bare(2) {
			t.Errorf("%s: %q %q %q", language, bare(0), bare(1), bare(2))
		}
	}
	a := parse("a.md", []byte("# A\n\n| a |\n|---|\n| 1 |\n\n![p](p.svg)\n\n* [x](x.md)（英文） and `c`\n"))
	b := parse("b.md", []byte("# B\n\n| a |\n|---|\n| 1 |\n| 2 |\n\n## 只有中文\n\n* [x（英文）](x.md)\n* [y](y.md)\n"))
	if got := fmt.Sprint(a.shape(nil)); got != "[h1 table of 2 picture list of 1]" {
		t.Errorf("shape %s", got)
	}
	if got := fmt.Sprint(b.shape(map[string]string{"只有中文": "why"})); got != "[h1 table of 3 list of 2]" {
		t.Errorf("shape %s", got)
	}
	if got := fmt.Sprint(b.column(0), a.spans()["c"], b.spans()["c"]); got != "[a 1 2] true false" {
		t.Errorf("columns and spans: %s", got)
	}
	var said []bool
	for _, d := range []*document{a, b} {
		d.walk(func(n ast.Node) bool {
			if link, ok := n.(*ast.Link); ok {
				said = append(said, saysEnglish(d, link))
			}
			return true
		})
	}
	if !slices.Equal(said, []bool{true, true, false}) {
		t.Errorf("links that say that they are English: %v", said)
	}
}
