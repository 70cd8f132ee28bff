//go:build unix

package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A chaosSlot has one process at a time, which is restarted again and again.
type chaosSlot struct {
	task    chaosTask
	cmd     *exec.Cmd
	files   string // the beginning of their names
	stderr  *bytes.Buffer
	ended   chan struct{} // closed when it has ended
	err     error         // how
	killed  bool          // by SIGKILL
	told    time.Time     // SIGTERM; zero if it was not
	stopped time.Time     // until when; zero if it is not
	again   time.Time     // when it is started again
}

func (c *chaos) start(s *chaosSlot) {
	c.starts++
	task := s.task
	task.Files = filepath.Join(c.dir, fmt.Sprintf("p%04d", c.starts))
	if task.Plugin {
		task.Files += "-plugin"
	}
	text, err := json.Marshal(task)
	if err != nil {
		c.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), chaosVariable+"="+string(text))
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		c.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	*s = chaosSlot{task: s.task, cmd: cmd, files: task.Files, stderr: stderr, ended: make(chan struct{})}
	go func(ended chan struct{}) {
		s.err = cmd.Wait()
		close(ended)
	}(s.ended)
}

// running reports whether a process runs. If it has ended, running checks how.
func (c *chaos) running(s *chaosSlot) bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
	default:
		if s.told.IsZero() || !s.stopped.IsZero() || time.Since(s.told) < 2*time.Minute {
			return true
		}
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.ended
		c.Errorf("%s did not end within two minutes of SIGTERM", filepath.Base(s.files))
		s.killed = false
	}
	var said strings.Builder
	for line := range strings.Lines(s.stderr.String()) {
		if !strings.HasPrefix(line, "[mysql] ") { // the driver's, of connections that were cut
			said.WriteString(line)
		}
	}
	early := false // it did not listen to SIGTERM yet
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		early = !s.told.IsZero() && status.Signaled() && status.Signal() == syscall.SIGTERM
	}
	if !s.killed && !early && s.err != nil || said.Len() > 0 {
		text := said.String()
		c.Errorf("%s ended with %v:\n%s", filepath.Base(s.files), s.err, text[:min(len(text), 20000)])
	}
	s.cmd = nil
	s.again = time.Now().Add(time.Duration(c.random.IntN(1000)) * time.Millisecond)
	return false
}

func (c *chaos) kill(s *chaosSlot) {
	if !c.running(s) {
		return
	}
	c.kills++
	s.killed = true
	_ = s.cmd.Process.Kill()
	<-s.ended
	c.running(s)
}

// stop stops a process for d.
func (c *chaos) stop(s *chaosSlot, d time.Duration) {
	if !c.running(s) || !s.stopped.IsZero() {
		return
	}
	c.stops++
	s.stopped = time.Now().Add(d)
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
}

// resume continues a stopped process if its pause has ended, or at once if anyway is set.
func (s *chaosSlot) resume(anyway bool) {
	if s.cmd != nil && !s.stopped.IsZero() && (anyway || time.Now().After(s.stopped)) {
		s.stopped = time.Time{}
		if !s.told.IsZero() {
			s.told = time.Now() // it hears it now
		}
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// pause returns how long to stop a process: usually longer than its grants and the time until others may reclaim its
// slot, but only a few at once.
func (c *chaos) pause(s *chaosSlot, long bool) time.Duration {
	stopped := 0
	for _, s := range c.slots {
		if !s.stopped.IsZero() {
			stopped++
		}
	}
	switch {
	case stopped >= len(c.slots)/4 || c.random.IntN(4) == 0:
		return time.Duration(c.random.IntN(2000)) * time.Millisecond
	case s.task.Plugin && long:
		return 15*time.Second + time.Duration(c.random.IntN(60))*time.Second
	}
	return 7*time.Second + time.Duration(c.random.IntN(6000))*time.Millisecond
}

// terminate makes a process close what it has, and end.
func (c *chaos) terminate(s *chaosSlot) {
	if c.running(s) && s.told.IsZero() {
		c.closes++
		s.told = time.Now()
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// setClock sets the clock of a process and of those that follow it, so many seconds ahead.
func (c *chaos) setClock(s *chaosSlot, seconds int) {
	c.steps++
	name := s.task.Clock + ".new"
	err := os.WriteFile(name, []byte(strconv.Itoa(seconds)), 0o666)
	if err == nil {
		err = os.Rename(name, s.task.Clock)
	}
	if err != nil {
		c.Error(err)
	}
}
