package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A Report is the figures of one part, and where they are from.
type Report[T any] struct {
	Size    string // whole, short or tiny
	Date    time.Time
	Took    time.Duration
	Load    string // of the last minute before the part, by /proc/loadavg
	Machine Machine
	Figures *T
}

// A Machine is where figures were measured.
type Machine struct {
	CPU      string
	CPUs     int
	MemoryGB int
	Kernel   string
	Go       string
	Commit   string            // of uidplugin
	Peers    map[string]string // versions
}

// here describes this machine and program.
func here() Machine {
	m := Machine{CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Peers: map[string]string{}}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
		}
	}
	var kb int
	_, _ = fmt.Sscanf(read("/proc/meminfo"), "MemTotal: %d kB", &kb)
	m.MemoryGB = (kb + 1<<19) >> 20
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			for _, peer := range []string{"bwmarrin", "sony/", "yitter", "google/uuid", "gofrs/uuid", "oklog",
				"rs/xid", "segmentio", "muyo", "gorm.io/gorm"} {
				if strings.Contains(d.Path, peer) {
					m.Peers[d.Path] = d.Version
				}
			}
		}
	}
	return m
}

// read returns the text of a file, or "".
func read(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}

// A part can be measured by itself.
type part struct {
	name string
	run  func(ctx context.Context, l *Lab, folder string) error
}

// parts are all of them, in the order of the document.
var parts = []part{
	{"making", reported("making", measureMaking)},
	{"create", reported("create", measureCreating)},
	{"rows", reported("rows", measureInserting)},
	{"order", reported("order", measureOrdering)},
	{"coordination", reported("coordination", measureCoordinating)},
	{"starting", reported("starting", measureStarting)},
}

// reported returns a function that measures a part and writes its report to a folder.
func reported[T any](name string, measure func(context.Context, *Lab) (*T, error)) func(context.Context, *Lab,
	string) error {
	return func(ctx context.Context, l *Lab, folder string) error {
		load, _, _ := strings.Cut(read("/proc/loadavg"), " ")
		begin := time.Now()
		figures, err := measure(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r := Report[T]{l.Name, begin.UTC().Truncate(time.Second), time.Since(begin).Round(time.Second), load, here(),
			figures}
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.WriteFile(filepath.Join(folder, name+".json"), append(text, '\n'), 0o666)
	}
}

// load reads the report of a part; it returns nil if there is none.
func load[T any](folder, name string) (*Report[T], error) {
	text, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Report[T]{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	return r, nil
}
