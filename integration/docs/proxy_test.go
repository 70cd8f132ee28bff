package docs_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const modulePath = "github.com/uidplugin/uidplugin"

// proxy makes a module proxy of files that has the work tree as the only version of the module, and returns the
// environment of go commands that use it. What the module requires is in the module cache already.
func proxy(t *testing.T) (environment []string, version string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it runs go commands")
	}
	now := time.Now().UTC()
	version = fmt.Sprintf("v0.0.0-%s-%012x", now.Format("20060102150405"), now.UnixNano()&(1<<48-1))
	dir := t.TempDir()
	versions := filepath.Join(dir, filepath.FromSlash(modulePath), "@v")
	must(t, os.MkdirAll(versions, 0o777))
	info, err := json.Marshal(map[string]any{"Version": version, "Time": now.Truncate(time.Second)})
	must(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	for name, content := range map[string][]byte{
		"@v/list": nil, "@latest": info, "@v/" + version + ".info": info, "@v/" + version + ".mod": mod,
	} {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(versions), filepath.FromSlash(name)), content, 0o666))
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	must(t, err)
	must(t, pack(archive, modulePath+"@"+version+"/"))
	must(t, archive.Close())

	graph := exec.CommandContext(t.Context(), "go", "mod", "graph") // puts what the module requires into the cache
	graph.Dir, graph.Env = root, append(os.Environ(), "GOWORK=off")
	must(t, graph.Run())
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	must(t, err)
	cache := strings.TrimSpace(string(out))
	t.Cleanup(func() { // the version is nobody else's
		_ = os.RemoveAll(filepath.Join(cache, filepath.FromSlash(modulePath)+"@"+version))
		for _, name := range []string{version + ".info", version + ".mod", version + ".zip", version + ".ziphash", version + ".lock", "list"} {
			_ = os.Remove(filepath.Join(cache, "cache", "download", filepath.FromSlash(modulePath), "@v", name))
		}
	})
	return append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(dir)+",file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download")),
		"GOSUMDB=off", "GOFLAGS=-modcacherw -mod=mod", "GOWORK=off", "TMPDIR="+t.TempDir()), version
}

// pack writes the files of the module, without those of nested modules, to an archive.
func pack(archive *os.File, prefix string) error {
	w := zip.NewWriter(archive)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			if name != root && (nested == nil || strings.HasPrefix(entry.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := w.Create(prefix + filepath.ToSlash(relative))
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// run runs a go command as a user does, outside of the repository.
func run(t *testing.T, environment []string, dir string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", arguments...)
	cmd.Dir, cmd.Env = dir, environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// The first command of the README needs no checkout. It would fail if the example were in a module of its own, or if
// go.mod had a replacement.
func TestProxy_TheQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	const name = modulePath + "/examples/quickstart@latest"
	if !strings.Contains(string(readme), "go run "+name+"\n") {
		t.Fatalf("README.md does not say: go run %s", name)
	}
	environment, _ := proxy(t)
	out := run(t, environment, t.TempDir(), "run", name)
	if !strings.Contains(out, "Run me again!") {
		t.Errorf("the quickstart says:\n%s", out)
	}
}

// The program of docs/getting-started.md works in a new module.
func TestProxy_ANewProgram(t *testing.T) {
	t.Parallel()
	d, err := read(filepath.Join(root, "docs", "getting-started.md"))
	must(t, err)
	var code string
	for _, b := range d.blocks {
		if strings.HasPrefix(b.code, "package main") {
			code = b.code
		}
	}
	if code == "" {
		t.Fatal("docs/getting-started.md has no program")
	}
	environment, version := proxy(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o666))
	run(t, environment, dir, "mod", "init", "shop")
	run(t, environment, dir, "get", modulePath)
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.Contains(string(mod), modulePath+" "+version) {
		t.Fatalf("%v: %s", err, mod)
	}
	out := run(t, environment, dir, "run", ".")
	for _, want := range []string{"orders", "*main.Order"} {
		if !strings.Contains(out, want) {
			t.Errorf("the program does not say %q:\n%s", want, out)
		}
	}
}
