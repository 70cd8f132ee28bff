package uidplugin_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/uidplugin/uidplugin"

// picture says what the packages may import next to the standard library: imports
// go downwards only. A package that is not in it is one that somebody has to add,
// here and in docs/architecture.md.
var picture = map[string]func(name string) bool{
	".":               importing("internal/adopt", "internal/catalog", "internal/inspect", "internal/core", "internal/fill", "internal/narrow", "internal/lookup", "internal/config", "internal/supply", "internal/model", "internal/sqldb", "generator", "workernode", "migrations", "internal/rounded"),
	"internal/core":   importing("internal/catalog", "internal/lookup", "internal/model", "internal/sqldb", "workernode"),
	"internal/lookup": importing("internal/catalog", "internal/config", "internal/supply", "internal/model", "internal/sqldb", "workernode", "generator"),
	"internal/admin":  importing("", "internal/adopt", "internal/follow", "internal/inspect", "internal/partition", "internal/rounded", "internal/sqldb", "internal/supply", "workernode", "generator", "segment"),
	"internal/catalog": func(name string) bool {
		return isGORM(name) || name == "github.com/jinzhu/inflection" || isPackage(name, "internal/config", "internal/supply", "internal/model", "internal/sqldb")
	},
	"internal/inspect":          importing("internal/catalog", "internal/sqldb"),
	"internal/adopt":            importing("internal/catalog", "internal/inspect", "internal/config", "internal/model", "internal/sqldb", "internal/supply", "workernode", "generator"),
	"internal/fill":             importing("internal/catalog", "internal/upsert", "internal/model", "internal/sqldb", "internal/supply"),
	"internal/narrow":           importing("internal/catalog", "internal/inspect", "internal/config", "internal/model", "internal/sqldb"),
	"internal/config":           importing("internal/supply", "generator", "workernode"),
	"internal/upsert":           importing("internal/model"),
	"internal/model":            isGORM,
	"internal/supply":           importing("internal/sqldb", "internal/logqueue", "generator", "workernode"),
	"segment":                   importing("internal/sqldb", "workernode", "generator"),                               // wing: segment
	"internal/segments":         importing("internal/sqldb", "internal/supply", "workernode", "generator", "segment"), // wing: segment
	"migrations":                importing("internal/follow", "internal/functions", "internal/partition", "internal/sqldb", "workernode", "generator"),
	"internal/functions":        importing("internal/sqldb", "workernode", "generator"),
	"workernode":                importing("workernode/internal/lease", "internal/sqldb", "internal/logqueue", "generator"),
	"publicid":                  importing("internal/core", "internal/lookup", "internal/model"),                                         // wing: publicid
	"follow":                    importing("", "internal/inspect", "internal/core", "internal/follow", "internal/sqldb"),                 // wing: follow
	"internal/follow":           importing("internal/sqldb", "internal/logqueue", "workernode", "generator", "internal/follow/consumer"), // wing: follow
	"internal/follow/consumer":  func(string) bool { return false },                                                                      // wing: follow
	"workernode/internal/lease": func(name string) bool { return isPackage(name, "generator") },
	"internal/partition":        importing("internal/sqldb", "generator"), // wing: partitions
	"internal/sqldb":            isGORM,
	"internal/logqueue":         func(string) bool { return false },
	"internal/rounded":          func(string) bool { return false },
	"generator/capacity":        func(name string) bool { return isPackage(name, "generator") },
	"generator/foreign":         func(name string) bool { return isPackage(name, "generator") },
	"generator":                 func(name string) bool { return isPackage(name, "ringbuffer") },
	"ringbuffer":                func(string) bool { return false },
	"uidtest":                   importing("", "internal/config", "internal/supply", "internal/model", "generator"),
	"inspector":                 importing("", "follow", "generator", "internal/admin", "internal/core", "workernode", "publicid", "internal/rounded"), // wing: inspector
	kit: func(name string) bool {
		return isGORM(name) || strings.HasPrefix(name, "gorm.io/driver/") || name == "github.com/glebarez/sqlite" || name == "github.com/DATA-DOG/go-sqlmock"
	},
	pluginKit: func(name string) bool {
		return isGORM(name) || name == module || name == "github.com/DATA-DOG/go-sqlmock" ||
			isPackage(name, kit, "internal/config", "generator", "workernode", "migrations", "publicid")
	},
}

// wired are packages with the code of a wing that runs inside a create. Of the root, only one file imports each, so
// a wing can be taken out there; integration/wings.sh does so.
var wired = map[string]string{
	"internal/follow":   "callbacks.go", // wing: follow
	"internal/segments": "segments.go",  // wing: segment
	"segment":           "segments.go",  // wing: segment
}

// kit and pluginKit have helpers of the tests. Only tests import them, also those of users.
const kit, pluginKit = "internal/testkit", "internal/plugintest"

// harness has the helpers of the tests in the folders of integration.
const harness = "integration/internal/harness"

// users use the library as an application does, and may import what is in go.mod.
var users = []string{"examples", "integration"}

// noSQL are the packages below workernode, which know of no database.
var noSQL = []string{"generator", "generator/capacity", "generator/foreign", "ringbuffer", "workernode/internal/lease"}

// codec makes texts from numbers, so it needs only the standard library.
const codec = "publicid/codec.go"

func isGORM(name string) bool {
	return name == "gorm.io/gorm" || strings.HasPrefix(name, "gorm.io/gorm/")
}

func isPackage(name string, packages ...string) bool {
	for _, p := range packages {
		if name == path.Join(module, p) {
			return true
		}
	}
	return false
}

// importing allows GORM and packages of this module; "" is the root.
func importing(packages ...string) func(name string) bool {
	return func(name string) bool { return isGORM(name) || isPackage(name, packages...) }
}

func TestImportsGoDownwardsOnly(t *testing.T) {
	t.Parallel()

	seen := checkImports(t, os.DirFS("."))
	for dir := range picture {
		if !seen[dir] {
			t.Errorf("there is no package %s", dir)
		}
	}
}

// This shows that the test above finds a forbidden import. Otherwise it could pass because it looks at nothing.
func TestImportsGoDownwardsOnly_FindsWhatIsForbidden(t *testing.T) {
	t.Parallel()

	imports := func(name string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package p\nimport _ \"" + name + "\"\n")}
	}
	for _, tt := range []struct {
		file, imports string
		errors        int
	}{
		{"plugin_test.go", module + "/" + kit, 0},
		{"generator/all_test.go", module + "/" + kit, 0},
		{"integration/leases/main_test.go", module + "/" + kit, 0},
		{harness + "/main.go", module + "/" + kit, 0},
		{pluginKit + "/plugintest.go", module + "/" + kit, 0},
		{pluginKit + "/plugintest.go", module, 0},
		{pluginKit + "/plugintest.go", module + "/inspector", 1},
		{"internal/lookup/find.go", module + "/" + pluginKit, 1},
		{"internal/lookup/find_test.go", module + "/" + pluginKit, 0},
		{"find.go", module + "/" + kit, 1},
		{"find.go", module + "/internal/follow", 1},
		{"segments.go", module + "/internal/segments", 0}, // wing: segment
		{"callbacks.go", module + "/internal/segments", 1},
		{"find.go", module + "/follow", 1},
		{"callbacks.go", module + "/internal/follow", 0}, // wing: follow
		{"examples/quickstart/main.go", module + "/" + kit, 1},
		{kit + "/must.go", module + "/generator", 1},
		{kit + "/must.go", "gorm.io/gorm", 0},
		{"generator/all.go", "gorm.io/gorm", 1},
		{"generator/all.go", "database/sql", 1},
		{"ringbuffer/all.go", "sync", 1},
		{"elsewhere/all.go", "sync", 1},
		{codec, "gorm.io/gorm", 1}, // wing: publicid
		{codec, "database/sql", 1}, // wing: publicid
		{codec, "strings", 0},      // wing: publicid
	} {
		found := &failureCounter{TB: t}
		checkImports(found, fstest.MapFS{tt.file: imports(tt.imports)})
		if found.n != tt.errors {
			t.Errorf("%s imports %s: %d errors, want %d", tt.file, tt.imports, found.n, tt.errors)
		}
	}
}

// failureCounter counts what it should report.
type failureCounter struct {
	testing.TB
	n int
}

func (c *failureCounter) Helper()               {}
func (c *failureCounter) Errorf(string, ...any) { c.n++ }

// checkImports reports each import of a file, other than a test, that it may not have. It returns the packages.
func checkImports(tb testing.TB, root fs.FS) (seen map[string]bool) {
	tb.Helper()
	seen = map[string]bool{}
	must(tb, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
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
		seen[path.Dir(name)] = true
		return checkFile(tb, root, name)
	}))
	return seen
}

// checkFile is checkImports for one file.
func checkFile(tb testing.TB, root fs.FS, name string) error {
	tb.Helper()
	dir := path.Dir(name)
	user := slices.ContainsFunc(users, func(u string) bool { return dir == u || strings.HasPrefix(dir, u+"/") })
	may, ok := picture[dir]
	if !ok && !user {
		tb.Errorf("%s: the package %s is not in the picture", name, dir)
		return nil
	}
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		switch first, _, _ := strings.Cut(imported, "/"); {
		case isPackage(imported, kit, pluginKit) && dir != harness && dir != pluginKit:
			tb.Errorf("%s imports %s; only tests may", name, imported)
		case name == codec && (strings.Contains(first, ".") || strings.HasPrefix(imported, "database/")):
			tb.Errorf("%s imports %s; it needs no database", name, imported)
		case user:
		case dir == "." && wired[strings.TrimPrefix(imported, module+"/")] == name:
		case strings.Contains(first, "."): // not the standard library's
			if !may(imported) {
				tb.Errorf("%s imports %s", name, imported)
			}
		case dir == "ringbuffer" && imported != "sync/atomic":
			tb.Errorf("%s imports %s; a ring needs only sync/atomic", name, imported)
		case strings.HasPrefix(imported, "database/") && slices.Contains(noSQL, dir):
			tb.Errorf("%s imports %s; SQL ends in workernode", name, imported)
		}
	}
	return nil
}
