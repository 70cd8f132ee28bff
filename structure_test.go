package uidplugin_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packages are those of this module that are no examples or tests.
var packages = []string{
	".", "generator", "generator/capacity", "generator/foreign", "segment", "follow", "migrations", "publicid", "uidtest", "inspector", "uidprom",
	"internal/adopt", "internal/admin", "internal/catalog", "internal/core", "internal/fill", "internal/narrow", "internal/lookup", "internal/segments", "workernode", "workernode/internal/lease", "ringbuffer", "internal/config",
	"internal/follow", "internal/model", "internal/partition", "internal/supply", "internal/upsert", "internal/sqldb", "internal/logqueue", "internal/rounded",
}

// A file that nobody can hold in the head, or a function that does several things, has to be divided.
func TestStructure_FilesAndFunctionsAreShort(t *testing.T) {
	t.Parallel()

	const mostLines, mostInFunction = 350, 60
	forEachFile(t, func(dir, name string, set *token.FileSet, f *ast.File) {
		if lines := set.Position(f.End()).Line; dir == "." && lines > mostLines {
			t.Errorf("%s has %d lines, more than %d", name, lines, mostLines)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				if lines := set.Position(d.End()).Line - set.Position(d.Pos()).Line + 1; lines > mostInFunction {
					t.Errorf("%s: %s has %d lines, more than %d", name, d.Name, lines, mostInFunction)
				}
			}
		}
	})
}

// Each exported name, method and field is one to learn and to keep. What only the plugin needs belongs into internal.
func TestStructure_ThePublicSurfaceIsSmall(t *testing.T) {
	t.Parallel()

	const most = 700
	all, by := 0, map[string]int{}
	forEachFile(t, func(dir, _ string, _ *token.FileSet, f *ast.File) {
		if !strings.Contains(dir, "internal/") {
			n := exported(f)
			all += n
			by[dir] += n
		}
	})
	t.Logf("%d exported names, methods and fields: %v", all, by)
	if all > most || by["."] == 0 || by["generator"] == 0 {
		t.Errorf("%d exported names, methods and fields, more than %d: %v", all, most, by)
	}
}

// Documents name files and tests. Without this test they would name those of last year.
func TestStructure_DocumentsNameFilesAndTestsThatExist(t *testing.T) {
	t.Parallel()

	names := testNames(t)
	quoted, test := regexp.MustCompile("`[^`]+`"), regexp.MustCompile(`\bTest[A-Z]\w*`)
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		documents, err := filepath.Glob(pattern)
		must(t, err)
		for _, document := range documents {
			text, err := os.ReadFile(document)
			must(t, err)
			ours, _, _ := strings.Cut(string(text), "## GORM's own tests")
			for line := range strings.Lines(ours) {
				folders := []string{"."}
				for _, q := range quoted.FindAllString(line, -1) {
					q = strings.Trim(q, "`")
					if info, err := os.Stat(q); err == nil && info.IsDir() {
						folders = append(folders, q)
					}
					if !regexp.MustCompile(`^[a-z_/]+\.(go|sql|sh)$`).MatchString(q) {
						continue
					}
					found++
					if !slices.ContainsFunc(folders, func(dir string) bool { return exists(filepath.Join(dir, q)) }) {
						t.Errorf("%s names the file %s, which does not exist:\n%s", document, q, line)
					}
					folders = append(folders, filepath.Dir(q))
				}
				for _, name := range test.FindAllString(line, -1) {
					found++
					if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name) }) {
						t.Errorf("%s names the test %s, which does not exist", document, name)
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("the documents name %d files and tests: the patterns of this test do not find them", found)
	}
}

// A program that "go build" left in its folder is in every clone, and in the module that users download.
func TestStructure_GitHasNoLargeFiles(t *testing.T) {
	t.Parallel()

	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("this is not a clone: %v", err)
	}
	const most = 1 << 20
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(name); err == nil && info.Size() > most {
			t.Errorf("git has %s with %d bytes, more than %d", name, info.Size(), most)
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// testNames returns the names of all tests, those of nested modules too.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)`)
	must(t, filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	}))
	return names
}

// exported counts the exported names that a file declares, and the exported methods and fields of exported types.
func exported(f *ast.File) (n int) {
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver(d.Recv.List[0].Type).IsExported() {
				count(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					count(spec.Names...)
				case *ast.TypeSpec:
					count(spec.Name)
					var members *ast.FieldList
					switch t := spec.Type.(type) {
					case *ast.StructType:
						members = t.Fields
					case *ast.InterfaceType:
						members = t.Methods
					}
					for i := 0; spec.Name.IsExported() && members != nil && i < len(members.List); i++ {
						count(members.List[i].Names...)
					}
				}
			}
		}
	}
	return n
}

// receiver returns the name of the type of a method.
func receiver(t ast.Expr) *ast.Ident {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t
	}
	return ast.NewIdent("_")
}

// forEachFile parses the files of packages, but for tests.
func forEachFile(t *testing.T, visit func(dir, name string, set *token.FileSet, f *ast.File)) {
	t.Helper()
	n := 0
	for _, dir := range packages {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		must(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			must(t, err)
			visit(dir, name, set, f)
			n++
		}
	}
	if n < 50 {
		t.Fatalf("%d files", n)
	}
}
