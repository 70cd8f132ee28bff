package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A part can be measured alone, because all parts take an hour. Its results are a file of JSON: a Run, and then a
// line for each measurement.
type part struct {
	name    string
	measure func(ctx context.Context, l *Lab, dest place) error
	render  func(dest place) (run *Run, tables string, err error) // without results, run is nil
}

// parts are in the order of the page.
var parts = []part{
	newPart("making", measureMaking, makingTable, drawMaking),
	newPart("create", measureCreating, nil, drawCreate),
	newPart("rows", measureRows, rowsTable, drawRows),
	newPart("order", measureOrder, orderTable, drawOrder),
	newPart("coordination", measureCoordination, coordinationTables, drawCoordination),
	newPart("starting", measureStarting, startingTable, drawStarting),
	newPart("follow", measureFollow, followTables, drawNothing),   // wing: follow
	newPart("consume", measureConsume, consumeTable, drawNothing), // wing: follow
}

func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// A Run is the origin of a part's results.
type Run struct {
	Size    string
	Date    time.Time
	Took    string
	Load    string // of the last minute before the run, by /proc/loadavg
	Commit  string
	Machine string
}

// newPart returns a part whose measurements have the type T. If table is nil, the part has only charts.
func newPart[T any](name string, measure func(context.Context, *Lab) ([]T, error), table func([]T) string,
	draw func(all []T, folder string) error) part {
	return part{name, func(ctx context.Context, l *Lab, dest place) error {
		load, _, _ := strings.Cut(read("/proc/loadavg"), " ")
		begin := time.Now()
		all, err := measure(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		err = e.Encode(Run{l.Name, begin.UTC().Truncate(time.Second), time.Since(begin).Round(time.Second).String(), load,
			checkedOut(), machine()})
		for _, one := range all {
			err = errors.Join(err, e.Encode(one))
		}
		return errors.Join(err, os.WriteFile(filepath.Join(dest.results, name+".json"), b.Bytes(), 0o666))
	}, func(dest place) (*Run, string, error) {
		run, all, err := load[T](filepath.Join(dest.results, name+".json"))
		if err != nil || len(all) == 0 {
			return nil, "Not measured.\n", err
		}
		text := ""
		if table != nil {
			text = table(all)
		}
		return run, text, draw(all, dest.charts)
	}}
}

// load reads the results of a part. Without a file it returns nothing.
func load[T any](file string) (run *Run, all []T, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for err = d.Decode(&run); err == nil; {
		var one T
		if err = d.Decode(&one); err == nil {
			all = append(all, one)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return run, all, nil
}

func checkedOut() string {
	out, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	return strings.TrimSpace(string(out))
}

func machine() string {
	_, cpu, _ := strings.Cut(read("/proc/cpuinfo"), "model name")
	cpu, _, _ = strings.Cut(strings.TrimLeft(cpu, "\t :"), "\n")
	var kb int
	_, _ = fmt.Sscanf(read("/proc/meminfo"), "MemTotal: %d kB", &kb)
	return fmt.Sprintf("%s, %d CPUs, %d GB of memory, Linux %s, %s %s/%s", cpu, runtime.GOMAXPROCS(0), (kb+1<<19)>>20,
		strings.TrimSpace(read("/proc/sys/kernel/osrelease")), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// read returns the text of a file, or "".
func read(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}
