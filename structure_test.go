package uidplugin_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// packages are those of this module that are no examples or tests.
var packages = []string{
	".", "generator", "generator/capacity", "generator/foreign", "segment", "follow", "migrations", "publicid", "uidtest", "inspector", "uidprom",
	"internal/adopt", "internal/admin", "internal/catalog", "internal/inspect", "internal/core", "internal/fill", "internal/functions", "internal/narrow", "internal/lookup", "internal/segments", "workernode", "workernode/internal/lease", "ringbuffer", "internal/config",
	"internal/follow", "internal/follow/consumer", "internal/model", "internal/partition", "internal/supply", "internal/upsert", "internal/sqldb", "internal/logqueue", "internal/rounded",
}

// heart are the packages without which no row gets an id, and no id resolves to its row.
var heart = []string{
	".", "generator", "ringbuffer", "workernode", "workernode/internal/lease", "migrations", "internal/catalog", "internal/config",
	"internal/core", "internal/fill", "internal/lookup", "internal/model", "internal/sqldb", "internal/supply", "internal/upsert",
}

// wingWords are the words of features that are no part of the heart. An identifier is divided into words by capitals.
var wingWords = regexp.MustCompile(`^(follow|follower|followed|following|partition|public|publicid|segment|gap|disposable|region)s?$`)

// smeared are the words of wings that stand in the heart nevertheless, each with its reason. Those "to move" are debts.
var smeared = []struct{ files, words, reason string }{
	{"callbacks.go", "follow", "wires internal/follow into creates"},             // wing: follow
	{"options.go", "segment", "adds the generator segment to the built-in ones"}, // wing: segment
	{"options.go", "disposable region", "the options"},
	{"errors.go", "region", "an alias of the error of workernode"},
	{"fixed.go registry.go internal/config/config.go", "region", "values of the options, on their way to workernode"},
	{"registry.go internal/config/config.go", "disposable", "values of the options, on their way to workernode"},
	{"internal/core/core.go", "region", "the region of the registry, for internal/follow"},
	{"workernode/*.go workernode/internal/lease/*.go", "region", "the numbers of a registry progress by stride and remainder"},
	{"workernode/manager.go workernode/add.go workernode/holder_acquire.go workernode/statements.go", "disposable",
		"to move: a slot that no process reclaims is a kind of slot"},
	{"generator/*.go", "follow", "the verb: a lease follows another"},
	{"workernode/clock.go workernode/session.go", "follow following", "the verb"},
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

// Users learn each exported name, method and field, and we have to keep it. Names that only the plugin needs belong
// into internal.
func TestStructure_ThePublicSurfaceIsSmall(t *testing.T) {
	t.Parallel()

	const most = 607
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

// Formerly each feature made the heart larger, because nothing measured it.
func TestStructure_TheHeartIsSmall(t *testing.T) {
	t.Parallel()

	const most = 18_800 // lines without tests; the aim is 16,500
	lines, found := checkHeart(t, os.DirFS("."))
	if t.Logf("the heart has %d lines", lines); lines > most || lines < most/2 {
		t.Errorf("the heart has %d lines without tests, more than %d", lines, most)
	}
	for _, s := range smeared {
		for file := range strings.FieldsSeq(s.files) {
			if !slices.ContainsFunc(found, func(f [2]string) bool {
				return matches(file, f[0]) && slices.Contains(strings.Fields(s.words), f[1])
			}) {
				t.Errorf("%s has no identifier with the words %q any more: remove it from smeared", file, s.words)
			}
		}
	}
}

// This shows that the test above finds an identifier. Otherwise it could pass because it looks at nothing.
func TestStructure_TheHeartIsSmall_FindsWordsOfWings(t *testing.T) {
	t.Parallel()

	for file, errors := range map[string]map[string]int{
		"internal/fill/fill.go":      {"var followed int": 1, "func leaveGaps() {}": 1, "type Segments struct { isPublic bool }": 2, "var gapless, regional int": 0},
		"internal/fill/fill_test.go": {"var followed int": 0},
		"internal/follow/follow.go":  {"var followed int": 0},
		"registry.go":                {"var region int": 0, "var segment int": 1},
		"workernode/region.go":       {"type Region int": 0, "type Partition int": 1},
		"migrations/follow.go":       {"func FollowStatements() {}": 1},
	} {
		for text, want := range errors {
			found := &failureCounter{TB: t}
			if checkHeart(found, fstest.MapFS{file: {Data: []byte("package p\n" + text)}}); found.n != want {
				t.Errorf("%s, %s: %d errors, want %d", file, text, found.n, want)
			}
		}
	}
	found := &failureCounter{TB: t}
	if checkHeart(found, fstest.MapFS{"migrations/follow.go": {Data: []byte("// wing: follow\n\npackage p\nvar follow int")}}); found.n != 0 {
		t.Errorf("%d errors in a file of a wing", found.n)
	}
}

// checkHeart reports each word of a wing in an identifier of the heart that smeared does not have. It leaves out files
// that integration/wings.sh deletes with a wing. It returns the number of lines of the heart, including those files,
// and the words in its files.
func checkHeart(tb testing.TB, root fs.FS) (lines int, found [][2]string) {
	tb.Helper()
	words := regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	for _, dir := range heart {
		names, err := fs.Glob(root, path.Join(dir, "*.go"))
		must(tb, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := fs.ReadFile(root, name)
			must(tb, err)
			lines += strings.Count(string(text), "\n")
			if strings.HasPrefix(string(text), "// wing: ") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
			must(tb, err)
			ast.Inspect(f, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				for _, word := range words.FindAllString(id.Name, -1) {
					if word = strings.ToLower(word); !wingWords.MatchString(word) {
						continue
					}
					if word != "following" {
						word = strings.TrimSuffix(strings.TrimSuffix(word, "ed"), "s")
					}
					if found = append(found, [2]string{name, word}); !isSmeared(name, word) {
						tb.Errorf("%s: the identifier %s is of a wing: have it outside of the heart, or in callbacks.go", name, id.Name)
					}
				}
				return true
			})
		}
	}
	return lines, found
}

// isSmeared reports whether smeared has a word of a file.
func isSmeared(file, word string) bool {
	for _, s := range smeared {
		for pattern := range strings.FieldsSeq(s.files) {
			if matches(pattern, file) && slices.Contains(strings.Fields(s.words), word) {
				return true
			}
		}
	}
	return false
}

// matches reports whether a file has a name like pattern.
func matches(pattern, file string) bool {
	ok, err := path.Match(pattern, file)
	if err != nil {
		panic(fmt.Sprintf("the pattern %s: %v", pattern, err))
	}
	return ok
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
		if _, err := os.Stat(dir); err != nil {
			continue // a wing that was taken out
		}
		set := token.NewFileSet()
		parseFolder(t, set, dir, func(f *ast.File) {
			visit(dir, set.Position(f.Package).Filename, set, f)
			n++
		})
	}
	if n < 50 {
		t.Fatalf("%d files", n)
	}
}
