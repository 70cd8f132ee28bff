package testkit_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A countTask is what the role "count" gets.
type countTask struct {
	From, Lines int
	Fail, Stay  bool
}

func TestMain(m *testing.M) {
	testkit.RunRole(testkit.Roles{"count": testkit.Role(count)})
	os.Exit(m.Run())
}

// count prints numbers, one a line, and half a line after them.
func count(task countTask) error {
	for i := range task.Lines {
		fmt.Println(task.From + i)
	}
	fmt.Print("half")
	if task.Stay {
		<-testkit.InputEnded()
	}
	if task.Fail {
		return errors.New("no more numbers")
	}
	return nil
}

// Without it a test of several processes could pass because no child did anything.
func TestStart_RunsTheRoleAndReadsItsLines(t *testing.T) {
	t.Parallel()

	var lines []string
	p := testkit.Start(t, "count", countTask{From: 5, Lines: 3}, func(line string) { lines = append(lines, line) })
	testkit.Must(t, p.Wait())
	if want := []string{"5", "6", "7"}; !slices.Equal(lines, want) {
		t.Errorf("lines %q, want %q", lines, want)
	}
}

func TestProcessWait_SaysWhyARoleFailed(t *testing.T) {
	t.Parallel()

	err := testkit.Start(t, "count", countTask{Fail: true}, nil).Wait()
	if err == nil || !strings.Contains(err.Error(), "no more numbers") {
		t.Errorf("a role that failed: %v", err)
	}
	err = testkit.Start(t, "nothing", nil, nil).Wait()
	if err == nil || !strings.Contains(err.Error(), `no role "nothing"`) {
		t.Errorf("a role that does not exist: %v", err)
	}
}

func TestProcess_StopsAndIsKilled(t *testing.T) {
	t.Parallel()

	printed := make(chan struct{}, 2)
	note := func(string) { printed <- struct{}{} }
	p := testkit.Start(t, "count", countTask{Lines: 1, Stay: true}, note)
	<-printed
	testkit.Must(t, p.Stop())

	p = testkit.Start(t, "count", countTask{Lines: 1, Stay: true}, note)
	<-printed
	p.Kill()
	p.Kill()
	if err := p.Wait(); err == nil {
		t.Error("a process that was killed ended well")
	}
}
