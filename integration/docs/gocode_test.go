package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// imports are the packages that code of documents may import. A fragment imports all of them.
var imports = []string{
	"context", "encoding/json", "errors", "fmt", "log", "log/slog", "math", "net/http", "os", "os/signal", "testing", "time",
	"github.com/DATA-DOG/go-sqlmock", "github.com/glebarez/sqlite", "github.com/prometheus/client_golang/prometheus",
	"gorm.io/driver/mysql", "gorm.io/driver/postgres", "gorm.io/gorm", "gorm.io/gorm/clause",
	"github.com/uidplugin/uidplugin", "github.com/uidplugin/uidplugin/generator",
	"github.com/uidplugin/uidplugin/generator/capacity", "github.com/uidplugin/uidplugin/generator/foreign", "github.com/uidplugin/uidplugin/inspector", "github.com/uidplugin/uidplugin/migrations",
	"github.com/uidplugin/uidplugin/follow", "github.com/uidplugin/uidplugin/publicid", "github.com/uidplugin/uidplugin/segment",
	"github.com/uidplugin/uidplugin/uidprom", "github.com/uidplugin/uidplugin/uidtest", "github.com/uidplugin/uidplugin/workernode",
}

// given are declarations that fragments use without declaring them. A document may declare any of them differently.
const given = `
type Order struct {
	ID         uidplugin.ID
	CustomerID uidplugin.ID
	Total      int
}

type Item struct{ ID uidplugin.ID }

type Invoice struct{ OrderID int64 }

type Customer struct{ ID uidplugin.ID }

var (
	ctx      context.Context
	mux      *http.ServeMux
	onlyAdmins func(http.Handler) http.Handler
	db       *gorm.DB
	tx       *gorm.DB
	registry *gorm.DB
	dsn      string
	err      error
	registryDSN string
	shardDSNs []string
	text     string
	customer uidplugin.ID
	secret   []byte
	from, to time.Time
	createdAt time.Time
	jvmZone *time.Location
	noon     time.Time
	id       uidplugin.ID
	ids      []uidplugin.ID
	order    Order
	orders   []Order
	plugin   *uidplugin.Plugin
	layout   generator.Layout
)
`

// A fragment has the declarations of a block of Go, and its other statements.
type fragment struct {
	declarations map[string]string // by name
	body         string
}

// split takes a block apart. Declarations begin in the first column.
func split(code string) fragment {
	f := fragment{declarations: map[string]string{}}
	var body strings.Builder
	lines := strings.SplitAfter(code, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		keyword, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(line, keyword) || !slices.Contains([]string{"type", "func", "import"}, keyword) {
			body.WriteString(line)
			continue
		}
		declaration := line
		if open := strings.TrimSpace(line); strings.HasSuffix(open, "{") || strings.HasSuffix(open, "(") {
			for i+1 < len(lines) && !strings.HasPrefix(lines[i], "}") && !strings.HasPrefix(lines[i], ")") {
				i++
				declaration += lines[i]
			}
		}
		switch {
		case keyword == "import": // all are imported
		case keyword == "func" && strings.HasPrefix(rest, "("):
			f.declarations[rest[:strings.Index(rest, "{")]] = declaration
		default:
			name := strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune(" ([", r) })[0]
			f.declarations[name] = declaration
		}
	}
	f.body = body.String()
	return f
}

// program returns a file with the declarations of a document so far and the statements of a block.
func program(declarations map[string]string, body string) string {
	var out strings.Builder
	out.WriteString("package p\n\nimport (\n")
	for _, p := range imports {
		fmt.Fprintf(&out, "\t%q\n", p)
	}
	out.WriteString(")\n")
	for _, name := range slices.Sorted(maps.Keys(declarations)) {
		out.WriteString(declarations[name] + "\n")
	}
	// Statements that use a declaration of the same name come after it, as in a function.
	out.WriteString("func _() error {\n" + body + "\nreturn nil\n}\n")
	return out.String()
}

func declared(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return names
}

// exports returns where the compiled form of each package is.
var exports = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, imports...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[name] = file
	}
	return files, nil
})

// compile returns the errors of the compiler, except those about unused variables and imports.
func compile(t *testing.T, code string) (errs []error) {
	t.Helper()
	files, err := exports()
	must(t, err)
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "block.go", code, 0)
	if err != nil {
		return []error{err}
	}
	parsed := []*ast.File{f}
	if f.Name.Name == "p" {
		parsed = append(parsed, rest(t, set, f))
	}
	config := types.Config{
		Importer: importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) { return os.Open(files[name]) }),
		Error: func(err error) {
			if e, ok := err.(types.Error); !ok || !e.Soft {
				errs = append(errs, err)
			}
		},
	}
	_, _ = config.Check(f.Name.Name, set, parsed, nil)
	return errs
}

// rest returns the given declarations without those that f declares itself.
func rest(t *testing.T, set *token.FileSet, f *ast.File) *ast.File {
	t.Helper()
	var header bytes.Buffer
	header.WriteString("package p\n\nimport (\n")
	for _, p := range imports {
		header.WriteString("\t" + strconv.Quote(p) + "\n")
	}
	other, err := parser.ParseFile(set, "given.go", header.String()+")\n"+given, 0)
	must(t, err)
	names := declared(f)
	for _, d := range other.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok != token.IMPORT {
			d.Specs = slices.DeleteFunc(d.Specs, func(s ast.Spec) bool {
				switch s := s.(type) {
				case *ast.TypeSpec:
					return names[s.Name.Name]
				case *ast.ValueSpec:
					s.Names = slices.DeleteFunc(s.Names, func(n *ast.Ident) bool { return names[n.Name] })
					return len(s.Names) == 0
				}
				return false
			})
		}
	}
	return other
}

// Code that does not compile is the first thing that a new user tries.
func TestCode_GoCompiles(t *testing.T) {
	t.Parallel()
	found := 0
	each(t, func(t *testing.T, d *document) {
		declarations := map[string]string{}
		for _, b := range d.blocks {
			if b.language != "go" {
				continue
			}
			found++
			source := b.code
			if !strings.HasPrefix(source, "package ") {
				f := split(source)
				maps.Copy(declarations, f.declarations)
				source = program(declarations, f.body)
			}
			for _, err := range compile(t, source) {
				t.Errorf("%s:%d: %v\n%s", d.name, b.line, err, b.code)
			}
		}
	})
	if found < 20 {
		t.Errorf("%d blocks of Go: they are not found", found)
	}
}

// The control: code that does not compile is noticed.
func TestCode_WrongGoIsNoticed(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"err := db.Use(uidplugin.New(uidplugin.WithNothing()))",
		"db.Create(&order).Error.Nothing()",
		"type Order struct {\n\tTotal int\n}\n\norder := Order{}\nfmt.Println(order.ID)",
		"if {",
	} {
		f := split(code)
		if len(compile(t, program(f.declarations, f.body))) == 0 {
			t.Errorf("compiles: %s", code)
		}
	}
	f := split("type Order struct {\n\tName string\n}\n\nfunc (Order) PublicPrefix() string { return \"ord\" }\n\nunused := Order{Name: text}\n")
	if errs := compile(t, program(f.declarations, f.body)); len(errs) > 0 {
		t.Error(errs)
	}
	if path.Base(imports[0]) != "context" {
		t.Error("imports")
	}
}
