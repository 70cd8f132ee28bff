package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// roleVariable is the environment variable that makes this program a child process with a role.
const roleVariable = "UID_BENCHMARKS_ROLE"

// roles are what child processes do. A role reads its task, as JSON, from the first line of in, and writes its lines
// to standard output.
var roles = map[string]func(task []byte, in *bufio.Reader) error{
	"insert": role(insertRows),
	"start":  role(startAndReport),
}

// role returns a role that takes its task as a T.
func role[T any](run func(task T, in *bufio.Reader) error) func([]byte, *bufio.Reader) error {
	return func(text []byte, in *bufio.Reader) error {
		var task T
		if err := json.Unmarshal(text, &task); err != nil {
			return err
		}
		return run(task, in)
	}
}

// runRole runs the role of a child process and exits. In any other process it returns at once.
func runRole() {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		return
	}
	in := bufio.NewReader(os.Stdin)
	task, err := in.ReadBytes('\n')
	if err == nil {
		err = roles[name](task, in)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "role %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A child is a child process with a role.
type child struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	told    lockedBuffer
}

// launch starts a child process. It is killed when ctx ends.
func launch(ctx context.Context, role string, task any) (*child, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{command: exec.CommandContext(ctx, self)}
	c.command.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	c.command.Stderr = &c.told
	if c.input, err = c.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.output = bufio.NewReaderSize(output, 1<<16)
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	return c, c.send(string(text))
}

// send writes a line to the process.
func (c *child) send(line string) error {
	_, err := io.WriteString(c.input, line+"\n")
	return err
}

// read reads a line from the process. The error says why the process has ended, if it has.
func (c *child) read() (string, error) {
	line, err := c.output.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("child process: %w\n%s", err, c.told.String())
	}
	return line[:len(line)-1], nil
}

// stop ends the input of the process and waits for its end.
func (c *child) stop() error {
	_ = c.input.Close()
	_, _ = io.Copy(io.Discard, c.output)
	if err := c.command.Wait(); err != nil {
		return fmt.Errorf("child process: %w\n%s", err, c.told.String())
	}
	return nil
}

// A lockedBuffer collects what a process tells.
type lockedBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
