package uidplugin_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/uidplugin/uidplugin"

// picture says what the packages may import beside the standard library: imports
// go downwards only. A package that is not in it is one that somebody has to add,
// here and in docs/architecture.md.
var picture = map[string]func(name string) bool{
	".": func(name string) bool {
		return isGORM(name) || isPackage(name, "generator", "workernode", "segment", "migrations")
	},
	"segment":    func(name string) bool { return isPackage(name, "workernode", "generator") },
	"migrations": func(name string) bool { return isPackage(name, "workernode") },
	"workernode": func(name string) bool { return isGORM(name) || isPackage(name, "generator") },
	"generator":  func(name string) bool { return isPackage(name, "ringbuffer") },
	"ringbuffer": func(string) bool { return false },
}

// users use the library as an application does, and may import what is in go.mod.
var users = []string{"examples", "integration"}

// noSQL are the packages below workernode, which know of no database.
var noSQL = []string{"generator", "ringbuffer"}

func isGORM(name string) bool {
	return name == "gorm.io/gorm" || strings.HasPrefix(name, "gorm.io/gorm/")
}

func isPackage(name string, packages ...string) bool {
	for _, p := range packages {
		if name == module+"/"+p {
			return true
		}
	}
	return false
}

func TestImportsGoDownwardsOnly(t *testing.T) {
	t.Parallel()

	root := os.DirFS(".")
	seen := map[string]bool{}
	must(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." || name != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return fs.SkipDir // another module, or none
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := path.Dir(name)
		seen[dir] = true
		for _, u := range users {
			if dir == u || strings.HasPrefix(dir, u+"/") {
				return nil
			}
		}
		may, ok := picture[dir]
		if !ok {
			t.Errorf("%s: the package %s is not in the picture", name, dir)
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			switch first, _, _ := strings.Cut(imported, "/"); {
			case strings.Contains(first, "."): // not the standard library's
				if !may(imported) {
					t.Errorf("%s imports %s", name, imported)
				}
			case dir == "ringbuffer" && imported != "sync/atomic":
				t.Errorf("%s imports %s; a ring needs only sync/atomic", name, imported)
			case strings.HasPrefix(imported, "database/"):
				for _, p := range noSQL {
					if dir == p {
						t.Errorf("%s imports %s; SQL ends in workernode", name, imported)
					}
				}
			}
		}
		return nil
	}))
	for dir := range picture {
		if !seen[dir] {
			t.Errorf("there is no package %s", dir)
		}
	}
}
