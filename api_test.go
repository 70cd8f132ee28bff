package uidplugin_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "TestAPI writes testdata/api.txt and testdata/json.txt")

// Programs of users are compiled with each exported declaration. A line that changes or goes breaks them.
func TestAPI_ExportedDeclarations(t *testing.T) {
	t.Parallel()

	var api strings.Builder
	list := func(dir string, all []string) {
		slices.Sort(all)
		fmt.Fprintf(&api, "# %s\n\n%s\n\n", dir, strings.Join(all, "\n"))
	}
	// The names of workernode that fields of the root have, and those with an alias here.
	aliases := map[string]bool{"Session": true, "SlotStats": true, "Kind": true, "Container": true, "Actual": true}
	for _, dir := range packages {
		if strings.Contains(dir, "internal/") || dir == "workernode" || dir == "ringbuffer" {
			continue // see docs/compatibility.md
		}
		set, all := token.NewFileSet(), []string(nil)
		parseFolder(t, set, dir, func(f *ast.File) {
			ast.FileExports(f)
			for _, d := range f.Decls {
				for _, text := range declarations(t, set, d) {
					all = append(all, text)
					if _, name, ok := strings.Cut(text, " = workernode."); ok && strings.HasPrefix(text, "type ") {
						aliases[name] = true
					}
				}
			}
		})
		list(dir, all)
	}
	set, all := token.NewFileSet(), []string(nil)
	parseFolder(t, set, "workernode", func(f *ast.File) {
		ast.FileExports(f)
		for _, d := range f.Decls {
			for _, text := range declarations(t, set, d) {
				if m := regexp.MustCompile(`^(?:type |const |func \((?:\w+ )?\*?)(\w+)`).FindStringSubmatch(text); m != nil && aliases[m[1]] {
					all = append(all, text)
				}
			}
		}
	})
	list("workernode, as far as the root package names it", all)
	compareGolden(t, "testdata/api.txt", api.String())
}

// Scripts read the keys of JSON objects. A key that changes or goes breaks them.
func TestAPI_KeysOfJSON(t *testing.T) {
	t.Parallel()

	var keys strings.Builder
	for _, dir := range []string{".", "generator", "follow", "workernode", "internal/follow", "internal/admin", "inspector", "cmd/uid"} {
		var all []string
		parseFolder(t, token.NewFileSet(), dir, func(f *ast.File) {
			name := "" // of the last type, or of the function with a type of its own
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					name = n.Name.Name
				case *ast.TypeSpec:
					name = n.Name.Name
				case *ast.Field:
					if key := keyOf(n); key != "" {
						all = append(all, name+" "+key)
					}
				}
				return true
			})
		})
		slices.Sort(all)
		fmt.Fprintf(&keys, "# %s\n\n%s\n\n", dir, strings.Join(all, "\n"))
	}
	compareGolden(t, "testdata/json.txt", keys.String())
}

// keyOf returns the key that the tag of a field names, or "".
func keyOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return ""
	}
	key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return strings.TrimPrefix(key, "-")
}

// declarations prints the exported declarations of d, without bodies, and the types of variables only if they have one.
func declarations(t *testing.T, set *token.FileSet, d ast.Decl) (all []string) {
	t.Helper()
	text := func(n any) string {
		var out bytes.Buffer
		must(t, printer.Fprint(&out, set, n))
		return regexp.MustCompile(`[ \t]+`).ReplaceAllString(out.String(), " ") // no columns, which a longer name moves
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || receiver(d.Recv.List[0].Type).IsExported() {
			d.Body = nil
			all = append(all, text(d))
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
				v.Values = nil
			}
			if _, ok := spec.(*ast.ImportSpec); !ok {
				all = append(all, d.Tok.String()+" "+text(spec))
			}
		}
	}
	return all
}

func parseFolder(t *testing.T, set *token.FileSet, dir string, visit func(f *ast.File)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	if len(names) == 0 {
		t.Fatalf("%s has no files", dir)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		must(t, err)
		visit(f)
	}
}

// compareGolden compares a text with a file, or writes the file.
func compareGolden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, []byte(text), 0o666))
	}
	golden, err := os.ReadFile(path)
	must(t, err)
	if text == string(golden) {
		return
	}
	was, is := strings.Split(string(golden), "\n"), strings.Split(text, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("%s: gone or changed, which breaks users before the next major version (docs/compatibility.md): %s", path, line)
		}
	}
	t.Errorf("%s differs: if names were only added, run  go test -run TestAPI . -update", path)
}
