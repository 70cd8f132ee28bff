//go:build unix

package chaos_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// previousCommit is the previous build: the commit of the last release, or, before the second one, the last commit
// whose tables had no version.
const previousCommit = "50a12e8"

// Processes of the previous build hold the tables when those of the current one start at once and upgrade them. Both
// then create rows and locate each other's, while processes are killed, stopped and replaced by others of either build.
// No id is made twice, each resolves to its table, and builds reclaim each other's slots.
func TestPreviousBuild_RunsNextToTheCurrentOne(t *testing.T) {
	testkit.SkipIfShort(t, "it compiles two builds")
	t.Parallel()
	builds := []string{buildPrevious(t), build(t, ".", "./testdata/mixed")}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		for _, table := range mixedTables {
			testkit.Must(t, db.Exec(`CREATE TABLE `+table+` (id BIGINT NOT NULL PRIMARY KEY)`).Error)
		}
		m := &mixed{T: t, database: d, db: db, builds: builds, made: make([]atomic.Int64, len(builds))}
		t.Cleanup(m.kill)
		for range 2 {
			m.start(0)
		}
		m.eventually("the previous build creates rows", func() bool { return m.made[0].Load() > 0 })
		if db.Migrator().HasColumn("WORKER_REGISTRY", "SCHEMA_VERSION") {
			t.Fatal("the previous build has a version: this test upgrades nothing")
		}
		for range 2 {
			m.start(1)
		}
		m.eventually("the current build creates rows", func() bool { return m.made[1].Load() > 0 })
		var version int
		testkit.Must(t, db.Table("WORKER_REGISTRY").Pluck("SCHEMA_VERSION", &version).Error)
		if version != workernode.SchemaVersion {
			t.Errorf("the tables have version %d", version)
		}
		before := m.made[0].Load()
		begin := time.Now()
		m.eventually("builds reclaim each other's slots", func() bool {
			m.replace()
			return time.Since(begin) > 8*time.Second && m.shared() && m.made[0].Load() > before
		})
		for _, p := range m.running {
			m.stop(p)
		}
		m.check()
	})
}

var mixedTables = []string{"mixed_a", "mixed_b", "mixed_c"}

// mixed is processes of two builds on one database.
type mixed struct {
	*testing.T
	database *testkit.Database
	db       *gorm.DB
	builds   []string
	made     []atomic.Int64 // rows, by build
	started  int
	running  []*mixedProcess
}

type mixedProcess struct {
	port    string // its build, and a number
	command *exec.Cmd
	input   io.Closer
	read    chan struct{} // closed after its output ended
	stderr  testkit.Log
}

func (m *mixed) start(build int) {
	m.Helper()
	m.started++
	p := &mixedProcess{port: fmt.Sprintf("%d-%d", build, m.started), read: make(chan struct{})}
	p.command = exec.Command(m.builds[build], m.database.Name, m.database.DSN())
	p.command.Env = append(os.Environ(), "PORT="+p.port)
	p.command.Stderr = &p.stderr
	var err error
	p.input, err = p.command.StdinPipe()
	testkit.Must(m, err)
	output, err := p.command.StdoutPipe()
	testkit.Must(m, err)
	testkit.Must(m, p.command.Start())
	m.running = append(m.running, p)
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			n, _ := strconv.ParseInt(lines.Text(), 10, 64)
			m.made[build].Add(n)
		}
	}()
}

// stop ends a process in order, and reports what it has found.
func (m *mixed) stop(p *mixedProcess) {
	m.Helper()
	_ = p.input.Close()
	<-p.read
	if err := p.command.Wait(); err != nil {
		m.Errorf("%v: %s", err, p.stderr.String())
	}
}

func (m *mixed) kill() {
	for _, p := range m.running {
		_ = p.command.Process.Kill()
		<-p.read
		_ = p.command.Wait()
	}
}

// replace kills or stops a process, and starts another of either build. It frees the slot, which would otherwise be
// reclaimed after a minute.
func (m *mixed) replace() {
	time.Sleep(300 * time.Millisecond)
	i := rand.IntN(len(m.running))
	p := m.running[i]
	m.running = append(m.running[:i], m.running[i+1:]...)
	if rand.IntN(2) == 0 {
		m.stop(p)
	} else {
		select {
		case <-p.read:
			m.Fatalf("a process has ended: %s", p.stderr.String())
		default:
		}
		_ = p.command.Process.Kill()
		<-p.read
		_ = p.command.Wait()
	}
	harness.Exec(m.T, m.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = '', "VERSION" = "VERSION" + 1000 WHERE "PORT" = ? AND "HOLDER" <> ''`, p.port)
	m.start(rand.IntN(len(m.builds)))
}

// shared reports whether processes of all builds have held one slot.
func (m *mixed) shared() bool {
	type session struct {
		Slot int64  `gorm:"column:SLOT"`
		Port string `gorm:"column:PORT"`
	}
	var sessions []session
	testkit.Must(m, m.db.Table("WORKER_SESSION").Find(&sessions).Error)
	build := map[int64]byte{}
	return slices.ContainsFunc(sessions, func(s session) bool {
		first, known := build[s.Slot]
		build[s.Slot] = s.Port[0]
		return known && first != s.Port[0]
	})
}

// check compares the ids of all rows, and locates some of them. Commit 50a12e8 cannot locate all of mixed_c when it is killed.
func (m *mixed) check() {
	m.Helper()
	ledger, p := testkit.NewLedger(m.T), harness.Use(m.T, m.db)
	rows := 0
	for _, table := range mixedTables {
		var ids []int64
		testkit.Must(m, m.db.Table(table).Pluck("id", &ids).Error)
		ledger.Add(table, ids...)
		rows += len(ids)
		for i := 0; i < len(ids); i += 23 {
			id := ids[i]
			l, err := p.Locate(m.Context(), uidplugin.ID(id))
			if table != "mixed_c" && err != nil || err == nil && l.Table != table {
				m.Fatalf("the id %d of %s is located in %q: %v", id, table, l.Table, err)
			}
		}
	}
	m.Logf("%d rows; %d of the previous build and %d of the current one", rows, m.made[0].Load(), m.made[1].Load())
}

func (m *mixed) eventually(why string, done func() bool) {
	m.Helper()
	testkit.Eventually(m, why, 90*time.Second, func() bool {
		for _, p := range m.running {
			select {
			case <-p.read:
				m.Fatalf("a process has ended: %s", p.stderr.String())
			default:
			}
		}
		return done()
	})
}

// build compiles a program in a folder.
func build(t *testing.T, folder, program string, env ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mixed") // both have one name, so they are one application and share slots
	command := exec.Command("go", "build", "-o", path, program)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", folder, err, out)
	}
	return path
}

// buildPrevious compiles the program with the files of the previous commit.
func buildPrevious(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	testkit.Must(t, err)
	files := exec.Command("git", "-C", root, "archive", "--format=tar", previousCommit)
	folder := t.TempDir()
	unpack := exec.Command("tar", "-xf", "-", "-C", folder)
	unpack.Stdin, err = files.StdoutPipe()
	testkit.Must(t, err)
	var said strings.Builder
	files.Stderr = &said
	testkit.Must(t, unpack.Start())
	if err := files.Run(); err != nil {
		_ = unpack.Wait()
		testkit.LeftOut(t, fmt.Sprintf("git has no commit %s (in a shallow clone, run git fetch --unshallow): %v: %s", previousCommit, err, said.String()))
	}
	testkit.Must(t, unpack.Wait())
	program, err := os.ReadFile("testdata/mixed/main.go")
	testkit.Must(t, err)
	testkit.Must(t, os.Mkdir(filepath.Join(folder, "mixed"), 0o777))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "mixed", "main.go"), program, 0o666))
	return build(t, folder, "./mixed", "GOWORK=off")
}
