package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// languages are those that a block may have.
var languages = map[string]bool{"go": true, "sh": true, "sql": true, "text": true, "json": true, "ini": true, "yaml": true}

// runSQL are the documents whose SQL the tests of integration/tables and integration/adopt run.
var runSQL = map[string]bool{"docs/sql.md": true, "docs/from-auto-increment.md": true, "docs/removing.md": true,
	"docs/from-uidgenerator.md": true}

// notRun are commands that no test runs as they are, and why.
var notRun = map[string]string{
	"git clone":                      "needs a network",
	"go get ":                        "TestProgram_GettingStarted builds the program",
	"go mod init ":                   "TestProgram_GettingStarted builds the program",
	"go mod edit ":                   "writes go.mod",
	"git tag ":                       "is for a release",
	"git push ":                      "is for a release",
	"cd \"$(mktemp -d)\"":            "needs a release",
	"go mod tidy":                    "looks for tests of what the program requires, in a network",
	"go run github.com/":             "TestProgram_TheQuickstart checks it",
	"go run ./examples/node -listen": "serves until it is stopped",
	"go install ":                    "needs a network",
	"go run ./cmd/uid":               "the scripts of cmd/uid run each command",
	"export ":                        "sets a variable",
	"uid ":                           "the scripts of cmd/uid run each command",
	"tail -n +2 ids.csv":             "its file is an example",
}

// commands returns the commands of a block, without comments.
func commands(code string) (all []string) {
	code = strings.ReplaceAll(code, "\\\n", " ")
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// Every block says what it is, and every command is run here or is of a kind that is checked.
func TestCode_ShellWorks(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	ran := map[string]bool{}
	each(t, func(t *testing.T, d *document) {
		for _, b := range d.blocks {
			if !languages[b.language] {
				t.Errorf("%s:%d: a block of the language %q", d.name, b.line, b.language)
			}
			if b.language == "sql" && !runSQL[d.name] && !chinese(d.name) {
				t.Errorf("%s:%d: no test runs this SQL", d.name, b.line)
			}
			if b.language != "sh" {
				continue
			}
			for _, command := range commands(b.code) {
				if err := check(command, string(makefile), func() error {
					if ran[command] {
						return nil
					}
					ran[command] = true
					return runHere(t, command)
				}); err != nil {
					t.Errorf("%s: %s: %v", d.name, command, err)
				}
			}
		}
	})
	if len(ran) < 3 {
		t.Errorf("only these commands were run: %v", ran)
	}
}

// check returns what is wrong with a command. It calls run for one that is to be run.
func check(command, makefile string, run func() error) error {
	for prefix := range notRun {
		if strings.HasPrefix(command, prefix) {
			return nil
		}
	}
	command = strings.TrimPrefix(command, "integration/servers.sh run -- ")
	command = strings.TrimPrefix(command, "integration/servers.sh run --engines mariadb -- ")
	words := strings.Fields(command)
	switch {
	case strings.HasPrefix(command, "go test "):
		return checkTest(command)
	case words[0] == "make" && len(words) > 1:
		if !strings.Contains(makefile, "\n"+words[1]+":") {
			return errors.New("the Makefile has no such target")
		}
		return nil
	case command == "go run .": // TestProgram_GettingStarted does it
		return nil
	case strings.HasPrefix(command, "go run ./examples/"):
		return run()
	}
	_, err := os.Stat(filepath.Join(root, words[0]))
	return err
}

// runHere runs an example in a folder for temporary files of its own.
func runHere(t *testing.T, command string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var (
	flagRun   = regexp.MustCompile(`-(?:run|fuzz) '?([\w$|]+)'?`)
	flagBench = regexp.MustCompile(`-bench '?([\w|]+)`)
	folder    = regexp.MustCompile(` (\./\S*|\.)(?: |$)`)
)

// checkTest returns an error if the folder of a "go test" does not exist, or lacks a test that it names.
func checkTest(command string) error {
	dir := folder.FindStringSubmatch(command)
	if dir == nil {
		return errors.New("no folder")
	}
	if strings.HasSuffix(dir[1], "...") {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir[1]), "*_test.go"))
	if err != nil {
		return err
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		tests.Write(text)
	}
	kind := "Test"
	if strings.Contains(command, "-fuzz") {
		kind = "Fuzz"
	}
	return errors.Join(
		named(flagRun.FindStringSubmatch(command), kind, tests.String()),
		named(flagBench.FindStringSubmatch(command), "Benchmark", tests.String()))
}

// named returns an error if a file lacks a function that the pattern of a flag names.
func named(flag []string, kind, file string) error {
	if flag == nil || flag[1] == "$" {
		return nil
	}
	for _, name := range strings.Split(flag[1], "|") {
		name = strings.TrimSuffix(name, "$")
		if !regexp.MustCompile(`(?m)^func ` + kind + `\w*` + strings.TrimPrefix(name, kind)).MatchString(file) {
			return fmt.Errorf("no %s%s", kind, strings.TrimPrefix(name, kind))
		}
	}
	return nil
}

func TestCode_WrongCommandsAreNoticed(t *testing.T) {
	t.Parallel()
	failed := errors.New("it was run")
	for _, command := range []string{
		"go test -run TestNoSuch ./generator/",
		"go test -run 'TestLayout|TestNoSuch' -v ./generator/",
		"go test -run TestLayout ./nowhere/",
		"go test -run '^$' -bench 'CachedFill1000|NoSuch' ./generator/",
		"make nothing",
		"integration/nothing.sh run",
		"go run ./examples/quickstart",
	} {
		if check(command, "\ntest: ## all", func() error { return failed }) == nil {
			t.Errorf("nothing is wrong with: %s", command)
		}
	}
	for _, command := range []string{"make test", "go test -run TestLayout ./generator/", "go test -run '^$' -bench CachedFill1000 ./generator/"} {
		if err := check(command, "\ntest: ## all", nil); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
