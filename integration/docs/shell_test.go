package docs_test

import (
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
var runSQL = map[string]bool{"docs/sql.md": true, "docs/from-auto-increment.md": true}

// notRun are commands that no test runs as they are, and why.
var notRun = map[string]string{
	"git clone":                      "needs a network",
	"go mod edit":                    "in the checkout of another project",
	"sed -i":                         "in the checkout of another project",
	"vi ":                            "is for people",
	"GOFLAGS=-mod=mod go test":       "in the checkout of another project",
	"go get ":                        "TestProxy_ANewProgram does it through a proxy",
	"go mod init ":                   "TestProxy_ANewProgram does it through a proxy",
	"go mod tidy":                    "looks for tests of what the program requires, in a network",
	"go run github.com/":             "TestProxy_TheQuickstart does it through a proxy",
	"go run ./examples/node -listen": "serves until it is stopped",
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
		for _, b := range d.blocks() {
			if !languages[b.language] {
				t.Errorf("%s:%d: a block of the language %q", d.name, b.line, b.language)
			}
			if b.language == "sql" && !runSQL[d.name] && !strings.Contains(d.name, "zh") {
				t.Errorf("%s:%d: no test runs this SQL", d.name, b.line)
			}
			if b.language != "sh" {
				continue
			}
			for _, command := range commands(b.code) {
				checkCommand(t, d, command, string(makefile), ran)
			}
		}
	})
	if len(ran) < 3 {
		t.Errorf("only these commands were run: %v", ran)
	}
}

func checkCommand(t *testing.T, d *document, command, makefile string, ran map[string]bool) {
	t.Helper()
	for prefix := range notRun {
		if strings.HasPrefix(command, prefix) {
			return
		}
	}
	command = strings.TrimPrefix(command, "integration/servers.sh run -- ")
	command = strings.TrimPrefix(command, "integration/servers.sh run --engines mariadb -- ")
	words := strings.Fields(command)
	switch {
	case strings.HasPrefix(command, "go test "):
		checkTest(t, d, command)
	case words[0] == "make" && len(words) > 1:
		if !strings.Contains(makefile, "\n"+words[1]+":") {
			t.Errorf("%s: %s: the Makefile has no such target", d.name, command)
		}
	case command == "go run .": // TestProxy_ANewProgram does it
	case strings.HasPrefix(command, "go run ./examples/"):
		if !ran[command] {
			ran[command] = true
			runHere(t, d, command)
		}
	default:
		if _, err := os.Stat(filepath.Join(root, words[0])); err != nil {
			t.Errorf("%s: no test knows the command %s", d.name, command)
		}
	}
}

// runHere runs an example in a folder for temporary files of its own.
func runHere(t *testing.T, d *document, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", d.name, command, err, out)
	}
}

var (
	flagRun   = regexp.MustCompile(`-(?:run|fuzz) '?([\w$|]+)'?`)
	flagBench = regexp.MustCompile(`-bench '?([\w|]+)`)
	folder    = regexp.MustCompile(` (\./\S*|\.)(?: |$)`)
)

// checkTest checks that the folder of a "go test" exists and has the tests that it names.
func checkTest(t *testing.T, d *document, command string) {
	t.Helper()
	dir := folder.FindStringSubmatch(command)
	if dir == nil {
		t.Errorf("%s: %s: no folder", d.name, command)
		return
	}
	if strings.HasSuffix(dir[1], "...") {
		return
	}
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir[1]), "*_test.go"))
	must(t, err)
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		tests.Write(text)
	}
	names := func(kind string, flag *regexp.Regexp) {
		m := flag.FindStringSubmatch(command)
		if m == nil || m[1] == "$" {
			return
		}
		for _, name := range strings.Split(m[1], "|") {
			pattern := `(?m)^func ` + kind + `\w*` + strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(name, "$"), "Test"), "Fuzz")
			if !regexp.MustCompile(pattern).MatchString(tests.String()) {
				t.Errorf("%s: %s: %s has no %s%s", d.name, command, dir[1], kind, name)
			}
		}
	}
	if strings.Contains(command, "-fuzz") {
		names("Fuzz", flagRun)
	} else {
		names("Test", flagRun)
	}
	names("Benchmark", flagBench)
}
