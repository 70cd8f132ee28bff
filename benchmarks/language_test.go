package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template/parse"
	"unicode"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestWrap_LeavesTablesAndCode(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("word ", 30))
	got := wrap("# "+long+"\n\n\n"+long+"\n"+long+"\n* "+long+"\n| "+long+" |\n```\n"+long+"\n```\n", 60)
	for line := range strings.Lines(got) {
		kept := strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.TrimSpace(line) == long
		if !kept && len(line) > 61 {
			t.Errorf("%q", line)
		}
	}
	if strings.Count(got, "word") != 180 || strings.Contains(got, "\n\n\n") ||
		!strings.Contains(got, "\n  word") || !strings.Contains(got, "```\n"+long+"\n```") {
		t.Errorf("%s", got)
	}
}

func TestWrap_BreaksChineseAfterMarks(t *testing.T) {
	t.Parallel()
	got := wrap("号段用完，换下一段（很少）。\n`Next` 生成 id，**快**：很快。\n* 一，二\n", 16)
	want := "号段用完，\n换下一段（很少）。\n`Next` 生成\nid，**快**：\n很快。\n* 一，二\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLanguageList_CountsWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	items := strings.Fields("a b c d e f")
	for want, got := range map[string]string{
		"a, b": inEnglish.list(items[:2]), "a、b": inChinese.list(items[:2]),
		"a, b, c, d and 2 more": inEnglish.list(items), "a、b、c、d，另有 2 种": inChinese.list(items),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

var (
	verb       = regexp.MustCompile(`%(?:\[(\d)\])?[+.\d]*[a-z]`)
	noLanguage = regexp.MustCompile(verb.String() + "|{{.*?}}|`.*?`")
)

// bilingual returns what is wrong with a text in two languages: one is missing, or writes other arguments.
func bilingual(english, chinese string) string {
	switch {
	case han(english):
		return "Chinese in English"
	case strings.ContainsFunc(noLanguage.ReplaceAllString(english, ""), unicode.IsLetter) && !han(chinese):
		return "no Chinese"
	case !slices.Equal(arguments(english), arguments(chinese)):
		return "formats with different arguments"
	}
	return ""
}

func han(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// arguments returns the numbers of the arguments that a format writes.
func arguments(format string) (all []int) {
	next := 1
	for _, m := range verb.FindAllStringSubmatch(format, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			next = n
		}
		all = append(all, next)
		next++
	}
	slices.Sort(all)
	return all
}

// The control: what is forgotten is noticed.
func TestBilingual_NoticesWhatIsForgotten(t *testing.T) {
	t.Parallel()
	for want, both := range map[string][2]string{
		"":                                 {"%s rows in %d MB", "%[2]d MB 里有 %[1]s 行"},
		"no Chinese":                       {"%s rows", "%s rows"},
		"Chinese in English":               {"%s 行", "%s 行"},
		"formats with different arguments": {"%s rows in %d MB", "%s 行"},
	} {
		if got := bilingual(both[0], both[1]); got != want {
			t.Errorf("%q: %q, want %q", both, got, want)
		}
	}
}

// Nobody writes a text in one language only: each call of say has both.
func TestLanguageSay_HasBothLanguages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	testkit.Must(t, err)
	said := 0
	for _, file := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		testkit.Must(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || called(call) != "say" {
				return true
			}
			var texts []string
			for _, arg := range call.Args {
				if text, ok := constant(arg); ok {
					texts = append(texts, text)
				}
			}
			if len(texts) < 2 {
				return true // it hands over what its caller was called with
			}
			said++
			if wrong := bilingual(texts[0], texts[1]); wrong != "" {
				t.Errorf("%s: %s: %q, %q", set.Position(n.Pos()), wrong, texts[0], texts[1])
			}
			return true
		})
	}
	if said < 50 {
		t.Errorf("%d texts: they are not found", said)
	}
	for raw, both := range terms {
		if wrong := bilingual(both[inEnglish], both[inChinese]); wrong != "" {
			t.Errorf("%q: %s", raw, wrong)
		}
	}
}

// called returns the last name of what is called.
func called(call *ast.CallExpr) string {
	switch e := call.Fun.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// constant returns the value of literals that are added to each other.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := constant(e.X)
		b, also := constant(e.Y)
		return a + b, ok && also
	}
	return "", false
}

// The same for document.tmpl: each call of say, and what is between {{if en}} and {{end}}. There is no other text.
func TestDocument_TemplateHasBothLanguages(t *testing.T) {
	t.Parallel()
	document, err := inEnglish.template()
	testkit.Must(t, err)
	said := 0
	check := func(english, chinese string) {
		said++
		if wrong := bilingual(english, chinese); wrong != "" {
			t.Errorf("%s: %q, %q", wrong, english, chinese)
		}
	}
	neither := regexp.MustCompile(`\(CHARTS/[a-z_]*|\.svg\)|db\.Create`)
	var walk func(list *parse.ListNode)
	branches := func(b parse.BranchNode) {
		walk(b.List)
		walk(b.ElseList)
	}
	walk = func(list *parse.ListNode) {
		if list == nil {
			return
		}
		for _, n := range list.Nodes {
			switch n := n.(type) {
			case *parse.ActionNode:
				if args := n.Pipe.Cmds[0].Args; args[0].String() == "say" {
					check(args[1].(*parse.StringNode).Text, args[2].(*parse.StringNode).Text)
				}
			case *parse.TextNode:
				if strings.ContainsFunc(neither.ReplaceAllString(n.String(), ""), unicode.IsLetter) {
					t.Errorf("a text in one language: %q", n)
				}
			case *parse.RangeNode:
				branches(n.BranchNode)
			case *parse.WithNode:
				branches(n.BranchNode)
			case *parse.IfNode:
				if n.Pipe.String() != "en" {
					branches(n.BranchNode)
				} else if n.ElseList == nil {
					t.Errorf("no {{else}}: %s", n)
				} else {
					check(strings.ReplaceAll(n.List.String(), "[中文]", ""), n.ElseList.String())
				}
			}
		}
	}
	walk(document.Root)
	if said < 40 {
		t.Errorf("%d texts: they are not found", said)
	}
}
