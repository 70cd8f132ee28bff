//go:build unix

package integration_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
)

var (
	planKills   = flag.Duration("plan.kills", 0, "how long TestKilledProcesses kills processes: a minute in the long form")
	planCrashes = flag.Int("plan.crashes", 0, "how often TestCrashesOfTheServer crashes it: 15 times in the long form")
)

// killedVariable makes the test binary a process of TestKilledProcesses.
const killedVariable = "UID_TEST_KILLED"

type killedTask struct {
	Engine, Env, Schema string
	Base                time.Time // of the clock, which runs pausedFactor times as fast
	Fixed               int64     // the control: a worker id that somebody has set
}

func init() {
	text := os.Getenv(killedVariable)
	if text == "" {
		return
	}
	if err := killed(text); err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killed makes ids, 500 at a time, until its input ends.
func killed(text string) error {
	begin := time.Now()
	var task killedTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	d := &database{engine: engine{name: task.Engine, env: task.Env}, schema: task.Schema}
	db, err := d.connect(nil)
	if err != nil {
		return err
	}
	c := &movedClock{base: task.Base, factor: pausedFactor}
	options := []uidplugin.Option{quiet, uidplugin.WithLayout(small(8)), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now)}
	if task.Fixed > 0 {
		options = append(options, uidplugin.WithWorkerID(task.Fixed))
	} else {
		options = append(options, uidplugin.WithSpares(0), uidplugin.WithMaxLanes(1))
	}
	p := uidplugin.New(options...)
	if err := db.Use(p); err != nil {
		return err
	}
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	out := bufio.NewWriter(os.Stdout)
	for first := true; ; first = false {
		for i := range 500 {
			id, err := nextID(p)
			if err != nil {
				return err
			}
			if first && i == 0 {
				fmt.Fprintln(out, "first", time.Since(begin).Milliseconds())
			}
			fmt.Fprintln(out, "id", id)
		}
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case <-end:
			return p.Close(db.Statement.Context)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Processes are killed and started again all the time, and one is stopped until its
// worker id is free for others, and goes on: no id comes twice, and worker ids are used
// again. With worker ids that somebody has set, which no fence guards, ids come twice.
// The clock runs faster, so that the 80 seconds after which a worker id is free are 4.
// The long form:
//
//	go test -run TestKilledProcesses -v ./integration/ -plan.kills 1m
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	length := 5 * time.Second
	switch {
	case *planKills > 0:
		length = *planKills
	case testing.Short():
		t.Skip("it takes some seconds")
	}
	each(t, func(t *testing.T, d *database) {
		r := killing(t, d, length, false)
		db := open(t, d)
		n := len(rows(t, db))
		slices.Sort(r.first)
		t.Logf("%d ids, %d starts, %d worker ids; from the start of a process to its first id: median %d ms, longest %d ms",
			len(r.ids.seen), r.starts, n, r.first[len(r.first)/2], r.first[len(r.first)-1])
		if r.ids.twice > 0 {
			t.Errorf("%d of %d ids came twice", r.ids.twice, len(r.ids.seen))
		}
		// Each start may find the worker ids of those that were killed in the last 4 seconds
		// still held; and some more, as machines are slow at times.
		if most := killedProcesses + 4 + int(float64(r.starts)*min(1, 6/length.Seconds())); n > most {
			t.Errorf("%d worker ids for %d processes in %d starts, want %d at most", n, killedProcesses, r.starts, most)
		}
		if !r.resumed {
			t.Error("the process that was stopped made no id afterwards")
		}
	}, "mysql", "postgres")
}

// The control of the test above.
func TestKilledProcessesControl(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		r := killing(t, d, 1200*time.Millisecond, true)
		t.Logf("%d of %d ids came twice", r.ids.twice, len(r.ids.seen))
		if r.ids.twice == 0 {
			t.Error("no id came twice, so TestKilledProcesses proves nothing")
		}
	}, "sqlite")
}

const killedProcesses = 3

// A killedReport is what came of processes that were killed.
type killedReport struct {
	mu      sync.Mutex
	ids     counted
	first   []int // milliseconds
	starts  int
	resumed bool
}

// killing kills processes for so long.
func killing(t *testing.T, d *database, length time.Duration, control bool) *killedReport {
	t.Helper()
	r := &killedReport{}
	base := time.Now()
	type process struct {
		cmd  *exec.Cmd
		in   io.Closer
		read chan struct{}
		lost bool // by SIGKILL
		n    int  // ids
	}
	start := func(slot int) *process {
		task := killedTask{Engine: d.name, Env: d.env, Schema: d.schema, Base: base}
		if control {
			task.Fixed = int64(slot + 1)
		}
		text, err := json.Marshal(task)
		must(t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killedVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		p := &process{cmd: cmd, in: in, read: make(chan struct{})}
		r.mu.Lock()
		r.starts++
		r.mu.Unlock()
		go func() {
			defer close(p.read)
			lines := bufio.NewReader(out)
			for {
				line, err := lines.ReadString('\n')
				if err != nil { // half a line was not issued
					return
				}
				var id int64
				r.mu.Lock()
				if n, _ := fmt.Sscanf(line, "id %d", &id); n == 1 {
					r.ids.add(id)
					p.n++
				} else if n, _ := fmt.Sscanf(line, "first %d", &id); n == 1 {
					r.first = append(r.first, int(id))
				}
				r.mu.Unlock()
			}
		}()
		return p
	}
	end := func(p *process) {
		_ = p.in.Close()
		<-p.read
		if err := p.cmd.Wait(); err != nil && !p.lost {
			t.Errorf("a process ended with %v", err)
		}
	}
	var processes [killedProcesses]*process
	for i := range processes {
		processes[i] = start(i)
	}
	count := func(p *process) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return p.n
	}
	eventually(t, 10*time.Second, "ids of all", func() bool {
		return !slices.ContainsFunc(processes[:], func(p *process) bool { return count(p) == 0 })
	})
	begin, before := time.Now(), 0
	const stopped = 4500 * time.Millisecond // longer than it takes for its worker id to be free
	if !control {
		must(t, processes[0].cmd.Process.Signal(syscall.SIGSTOP))
		before = count(processes[0])
	}
	for time.Since(begin) < length {
		time.Sleep(200*time.Millisecond + rand.N(300*time.Millisecond))
		if !control && before >= 0 && time.Since(begin) > stopped {
			before = max(before, count(processes[0]))
			must(t, processes[0].cmd.Process.Signal(syscall.SIGCONT))
			eventually(t, 5*time.Second, "id of the process that was stopped", func() bool { return count(processes[0]) > before+500 })
			r.resumed, before = true, -1
		}
		i := 1 + rand.IntN(killedProcesses-1)
		processes[i].lost = true
		must(t, processes[i].cmd.Process.Kill())
		end(processes[i])
		processes[i] = start(i)
	}
	for _, p := range processes {
		end(p)
	}
	return r
}

// The server crashes and comes back again and again, and a caller who takes a quarter of
// what a worker id makes never waits for it; renewals go on as soon as it is back. One
// whose lease holds fewer ids than he takes meanwhile, as the control, does wait. The
// long form:
//
//	go test -run TestCrashesOfTheServer -v ./integration/ -plan.crashes 15
func TestCrashesOfTheServer(t *testing.T) {
	t.Parallel()
	crashes := 1
	switch {
	case *planCrashes > 0:
		crashes = *planCrashes
	case testing.Short():
		t.Skip("it starts a server")
	case os.Getenv("UID_TEST_MARIADB") == "":
		t.Skip("UID_TEST_MARIADB is not set: no mariadb")
	}
	server(t, "mariadb", func(d *database, run func(command string)) {
		type caller struct {
			p       *uidplugin.Plugin
			ids     used
			longest time.Duration
			failed  int
		}
		stop := make(chan struct{})
		var group sync.WaitGroup
		call := func(options ...uidplugin.Option) *caller {
			c := &caller{p: use(t, open(t, fresh(t, d.engine)), append(options, uidplugin.WithModels(&T1{}))...)}
			group.Go(func() {
				for tick := time.NewTicker(10 * time.Millisecond); ; {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					for range 20 { // 2000 a second
						begin := time.Now()
						id, err := nextID(c.p)
						c.longest = max(c.longest, time.Since(begin))
						if err != nil {
							c.failed++
						} else if _, there := c.ids.ids[id]; there {
							t.Errorf("id %d came twice", id)
						} else {
							c.ids.add(t, id, "the caller")
						}
					}
				}
			})
			return c
		}
		patient, control := call(), call(uidplugin.WithLayout(small(6)), uidplugin.WithMaxLanes(1))
		var recovery time.Duration
		for range crashes {
			time.Sleep(500 * time.Millisecond)
			run("kill")
			time.Sleep(500 * time.Millisecond)
			eventually(t, 5*time.Second, "notice of the crash by one who needs renewals", func() bool { return control.p.Health() != nil })
			run("start")
			begin := time.Now()
			eventually(t, 10*time.Second, "renewal after the return", func() bool { return control.p.Health() == nil })
			recovery = max(recovery, time.Since(begin))
		}
		close(stop)
		group.Wait()
		t.Logf("%d crashes: %d ids, %d failures, the longest call %v; renewals at most %v after the server's return; the control: %d ids, %d failures, %v",
			crashes, len(patient.ids.ids), patient.failed, patient.longest, recovery, len(control.ids.ids), control.failed, control.longest)
		// On a machine that is busy a goroutine waits for its turn.
		if patient.failed > 0 || patient.longest > 400*time.Millisecond {
			t.Errorf("%d failures, the longest call took %v", patient.failed, patient.longest)
		}
		if control.failed == 0 && control.longest < time.Second {
			t.Error("the control did not wait either")
		}
		if recovery > 3*time.Second {
			t.Errorf("renewals went on %v after the server's return, not within a second", recovery)
		}
	})
}
