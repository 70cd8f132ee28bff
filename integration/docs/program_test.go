package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The first command of the README needs no checkout. It would fail if the example were in a module of its own, or if
// go.mod had a replacement.
func TestProgram_TheQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	if !strings.Contains(string(readme), "go run ./examples/quickstart") {
		t.Error("README.md does not run the quickstart")
	}
	if _, err := os.Stat(filepath.Join(root, "examples/quickstart/go.mod")); err == nil || strings.Contains(string(mod), "\nreplace") {
		t.Error("the quickstart is in a module of its own, or go.mod has a replacement")
	}
}

// The command and the metrics are modules of their own. "go install" refuses a module with a replacement, and the command
// imports internal packages, so each release of it requires the same release of the root module.
func TestProgram_ModulesRequireTheNewestRelease(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	must(t, err)
	newest := regexp.MustCompile(`(?m)^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(changes)
	if newest == nil {
		t.Fatal("CHANGELOG.md has no release")
	}
	for _, dir := range []string{"cmd/uid", "uidprom"} {
		mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		must(t, err)
		if regexp.MustCompile(`(?m)^(replace|exclude)\b`).Match(mod) {
			t.Errorf("%s/go.mod has a replacement or exclusion", dir)
		}
		if want := fmt.Sprintf("\tgithub.com/uidplugin/uidplugin v%s\n", newest[1]); !strings.Contains(string(mod), want) {
			t.Errorf("%s/go.mod does not require %s", dir, want)
		}
	}
}

// The program of docs/getting-started.md is the first that a new user runs.
func TestProgram_GettingStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	for _, b := range byName(t)["docs/getting-started.md"].blocks {
		if strings.HasPrefix(b.code, "package main") {
			must(t, os.WriteFile(main, []byte(b.code), 0o666))
		}
	}
	program := filepath.Join(dir, "shop")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, main)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"orders", "*main.Order"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v; the program does not print %q:\n%s", err, want, out)
		}
	}
}
