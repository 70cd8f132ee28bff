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

// The environment variables that make a test binary a child process.
const (
	roleVariable = "UID_TEST_ROLE"
	taskVariable = "UID_TEST_TASK"
)

// Roles are what child processes of a test binary can do, by name. A role gets its task as JSON; [Role] makes one.
type Roles map[string]func(task []byte) error

// Role returns a role for a function that takes its task as a T.
func Role[T any](run func(task T) error) func([]byte) error {
	return func(text []byte) error {
		var task T
		if err := json.Unmarshal(text, &task); err != nil {
			return err
		}
		return run(task)
	}
}

// RunRole runs the role that this process was started for by [Start], and then exits: with code 1 and the error on
// stderr if the role failed. In any other process it returns at once. Call it first in TestMain.
func RunRole(roles Roles) {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		return
	}
	// A process that this one starts is not a child of the test.
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

// InputEnded returns a channel that is closed when the standard input of this process ends: when the test calls
// [Process.Stop], or when the test itself has ended. A role that runs until then calls it once.
func InputEnded() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// A Process is a child process that runs one role of the test binary. What the role writes to stdout is read as
// lines. Its methods are safe for concurrent use.
type Process struct {
	command *exec.Cmd
	input   io.WriteCloser
	done    chan struct{} // closed when the process has ended and its output was read
	err     error         // how it ended; read after done
	stderr  Log
	kill    sync.Once
}

// Start starts a child process with a role and a task, which must have a form as JSON. It calls line, which may be
// nil, on another goroutine, for each line of output without its newline. A last line without a newline is dropped:
// the process was killed while it wrote it. A process that still runs when the test ends is killed.
func Start(tb testing.TB, role string, task any, line func(line string)) *Process {
	tb.Helper()
	text, err := json.Marshal(task)
	Must(tb, err)
	path, err := os.Executable()
	Must(tb, err)
	p := &Process{command: exec.Command(path), done: make(chan struct{})}
	// The race detector would otherwise sleep for a second at the end.
	p.command.Env = append(os.Environ(),
		roleVariable+"="+role, taskVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.command.Stderr = &p.stderr
	p.input, err = p.command.StdinPipe()
	Must(tb, err)
	output, err := p.command.StdoutPipe()
	Must(tb, err)
	Must(tb, p.command.Start())
	tb.Cleanup(p.Kill)
	go func() {
		defer close(p.done)
		read(output, line)
		p.err = p.command.Wait()
	}()
	return p
}

// read calls line for each whole line.
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

// PID returns the id of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Send writes a line to the standard input of the process.
func (p *Process) Send(line string) error {
	_, err := io.WriteString(p.input, line+"\n")
	return err
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.command.Process.Signal(s) }

// Kill ends the process by SIGKILL and waits until its output was read. It does nothing if the process has ended.
func (p *Process) Kill() {
	p.kill.Do(func() { _ = p.command.Process.Kill() })
	<-p.done
}

// Stop ends the standard input of the process, and waits as Wait does.
func (p *Process) Stop() error {
	_ = p.input.Close()
	return p.Wait()
}

// Done returns a channel that is closed when the process has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended and its output was read. The error says how it ended, if not with code 0, and
// holds what it wrote to stderr.
func (p *Process) Wait() error {
	<-p.done
	if p.err != nil {
		return fmt.Errorf("child process: %w\n%s", p.err, p.Stderr())
	}
	return nil
}

// Stderr returns what the process has written to stderr.
func (p *Process) Stderr() string { return p.stderr.String() }
