package docs_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A logLine is a message that the source passes to a logger. In the text, "…" stands for the parts that are only known
// at run time.
type logLine struct{ text, level string }

// logLines returns the log lines of all packages that run in applications.
func logLines(t *testing.T) map[logLine]bool {
	t.Helper()
	lines := map[logLine]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch name := d.Name(); {
			case path == filepath.Join(root, "cmd"), path == filepath.Join(root, "benchmarks"), path == filepath.Join(root, "examples"),
				path == filepath.Join(root, "integration"), name == "testkit", len(name) > 2 && name[0] == '.' && name[1] != '.':
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			addLogLines(t, path, decl, lines)
		}
		return nil
	})
	must(t, err)
	return lines
}

// addLogLines adds the log lines of a declaration. A variable stands for each text that is assigned to it.
func addLogLines(t *testing.T, path string, decl ast.Decl, lines map[logLine]bool) {
	t.Helper()
	assigned := map[string][]string{}
	ast.Inspect(decl, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i := range a.Lhs {
				if name, ok := a.Lhs[i].(*ast.Ident); ok && fixedText(a.Rhs[i]) != "" {
					assigned[name.Name] = append(assigned[name.Name], fixedText(a.Rhs[i]))
				}
			}
		}
		return true
	})
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !logMethod.MatchString(method.Sel.Name) || !logger.MatchString(lastName(method.X)) {
			return true
		}
		texts := []string{fixedText(call.Args[0])}
		if name, ok := call.Args[0].(*ast.Ident); ok {
			texts = assigned[name.Name]
		}
		if len(texts) == 0 || texts[0] == "" {
			t.Errorf("%s logs a text that this test does not find", path)
		}
		for _, text := range texts {
			lines[logLine{text, strings.ToUpper(method.Sel.Name)}] = true
		}
		return true
	})
}

var (
	logMethod = regexp.MustCompile(`^(Debug|Info|Warn|Error)$`)
	logger    = regexp.MustCompile(`(?i)log(ger)?$`)
)

// lastName returns the name of a variable or field.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// fixedText returns the text of an expression, which begins with a literal; empty if it does not.
func fixedText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		if left := fixedText(e.X); left != "" && e.Op == token.ADD {
			return strings.ReplaceAll(left+cmp.Or(fixedText(e.Y), "…"), "……", "…")
		}
	}
	return ""
}

// Operators search the page for a line of the log, so it must have each line of the source, and no others.
func TestLogs_HasEveryLineOfTheSource(t *testing.T) {
	t.Parallel()

	d, err := read(root + "/docs/logs.md")
	must(t, err)
	listed := map[logLine]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| ([A-Z]+) \\| .+ \\| .+ \\|$").FindAllStringSubmatch(string(d.source), -1) {
		listed[logLine{row[1], row[2]}] = true
	}
	logged := logLines(t)
	if len(logged) < 30 {
		t.Errorf("only %d lines were found in the source", len(logged))
	}
	for l := range logged {
		if !listed[l] {
			t.Errorf("docs/logs.md has no row for: | `%s` | %s | are rows at risk | what to do |", l.text, l.level)
		}
	}
	for l := range listed {
		if !logged[l] {
			t.Errorf("the source does not log, at the level %s: %s", l.level, l.text)
		}
	}
}
