package testkit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Environment variables that turn a test binary into a child process.
const (
	roleVariable = "UID_TEST_ROLE"
	taskVariable = "UID_TEST_TASK"
)

// Roles are the functions that child processes run, by name. Each gets its task as JSON; see [Role].
type Roles map[string]func(task []byte) error

// Role wraps a function that takes its task as a T.
func Role[T any](run func(task T) error) func([]byte) error {
	return func(text []byte) error {
		var task T
		if err := json.Unmarshal(text, &task); err != nil {
			return err
		}
		return run(task)
	}
}

// RunRole runs the role for which [Start] started this process, and exits, with code 1 after an error. In other
// processes it returns at once. Call it first in TestMain.
func RunRole(roles Roles) {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		return
	}
	// Processes that this process starts should not run the role again.
	task := os.Getenv(taskVariable)
	_ = os.Unsetenv(roleVariable)
	_ = os.Unsetenv(taskVariable)
	run, ok := roles[name]
	err := fmt.Errorf("this test binary has no role %q", name)
	if ok {
		err = run([]byte(task))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "role %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// InputEnded returns a channel that is closed at the end of standard input: after [Process.End] or [Process.Stop],
// or when the parent process has ended. A role should call InputEnded once.
func InputEnded() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// A Process is a child process that runs one role of the test binary. Its methods may be called concurrently.
type Process struct {
	command *exec.Cmd
	input   io.WriteCloser
	done    chan struct{} // closed after the process has ended and we have read its output
	err     error         // result of the process; read after done
	stderr  Log
	kill    sync.Once
}

// Start is like [Launch], and kills the process when the test ends.
func Start(tb testing.TB, role string, task any, line func(line string)) *Process {
	tb.Helper()
	p, err := Launch(role, task, line)
	Must(tb, err)
	tb.Cleanup(p.Kill)
	return p
}

// Launch starts a child process with a role and a task, which must marshal to JSON. Another goroutine passes each
// line of output, without the newline, to the function line, which may be nil. It drops an incomplete last line,
// because the process was killed while it wrote the line.
func Launch(role string, task any, line func(line string)) (*Process, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{command: exec.Command(path), done: make(chan struct{})}
	// Without GORACE the race detector would sleep for a second at the end.
	p.command.Env = append(os.Environ(),
		roleVariable+"="+role, taskVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.command.Stderr = &p.stderr
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		read(output, line)
		p.err = p.command.Wait()
	}()
	return p, nil
}

func read(output io.Reader, line func(string)) {
	for reader := bufio.NewReader(output); ; {
		text, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		if line != nil {
			line(strings.TrimSuffix(text, "\n"))
		}
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Send writes a line to the process's standard input.
func (p *Process) Send(line string) error {
	_, err := io.WriteString(p.input, line+"\n")
	return err
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.command.Process.Signal(s) }

// Kill sends SIGKILL and waits until the process has ended and its output is read.
func (p *Process) Kill() {
	p.kill.Do(func() { _ = p.command.Process.Kill() })
	<-p.done
}

// End closes the process's standard input.
func (p *Process) End() error { return p.input.Close() }

// Stop calls End, then Wait.
func (p *Process) Stop() error {
	_ = p.End()
	return p.Wait()
}

// Done returns a channel that is closed after the process has ended and its output is read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended and its output is read. The error of a failed process includes stderr.
func (p *Process) Wait() error {
	<-p.done
	if p.err != nil {
		return fmt.Errorf("child process: %w\n%s", p.err, p.Stderr())
	}
	return nil
}

// Stderr returns the process's output on stderr.
func (p *Process) Stderr() string { return p.stderr.String() }
