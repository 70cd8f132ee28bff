// Command benchmarks measures uidplugin and what people would use instead, and writes docs/benchmarks.md and
// docs/zh/benchmarks.md with charts and the raw figures. Run it in the root folder of the repository, on a machine that
// does nothing else:
//
//	make compare                      everything, in less than 45 minutes on two CPUs
//	make compare SHORT=1              less of everything, in less than 3 minutes, into benchmarks/short
//	go run ./benchmarks -run order    one part; the document keeps the other parts' figures
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	runRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := compare(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// A place is where the document, its charts and the raw figures go.
type place struct{ document, charts, results string }

// compare measures the parts that the arguments name, and writes the document.
func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	short := flags.Bool("short", false, "measure less, in less than 3 minutes, and write to benchmarks/short")
	run := flags.String("run", "", "parts to measure, with commas between them: "+strings.Join(names(), ",")+
		"; all if empty")
	rows := flags.Int("rows", 0, "rows to insert into each table; 0: as many as the form has")
	engines := flags.String("engines", "mariadb,mysql,postgres",
		"database servers to measure, as far as they can be had")
	running := flags.Bool("running", false, "use the servers of UID_TEST_MARIADB and so on instead of private ones")
	data := flags.String("data", os.TempDir(),
		"folder on a disk, for servers whose tables are larger than their memory")
	out := flags.String("out", "", "folder to write to; empty: docs and benchmarks/results, or benchmarks/short")
	render := flags.Bool("render", false, "only write the document again, from the raw figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(serversScript); err != nil {
		return fmt.Errorf("run this in the root folder of the repository: %w", err)
	}
	l := &Lab{Sizes: Whole(), Engines: strings.Split(*engines, ","), Running: *running, Data: *data, Log: os.Stderr,
		Begun: time.Now()}
	to := place{"docs/benchmarks.md", "docs/benchmarks", "benchmarks/results"}
	if *short {
		l.Sizes, *out = Short(), cmp.Or(*out, "benchmarks/short")
	}
	if *out != "" {
		to = place{filepath.Join(*out, "benchmarks.md"), filepath.Join(*out, "benchmarks"),
			filepath.Join(*out, "results")}
	}
	if *rows > 0 {
		l.Rows = max(*rows, l.Chunk)
	}
	var failed error // a part that fails does not keep the others from being measured
	if !*render {
		failed = measure(ctx, l, *run, to)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := write(to)
	if err == nil {
		l.Say("wrote %s", to.document)
	}
	return errors.Join(failed, err)
}

// names returns the names of all parts.
func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// measure measures the parts of a list.
func measure(ctx context.Context, l *Lab, list string, to place) (failed error) {
	wanted := names()
	if list != "" {
		wanted = strings.Split(list, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no part is called %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	if err := os.MkdirAll(to.results, 0o777); err != nil {
		return err
	}
	for _, p := range parts {
		if slices.Contains(wanted, p.name) && ctx.Err() == nil {
			failed = errors.Join(failed, p.run(ctx, l, to.results))
		}
	}
	return errors.Join(failed, ctx.Err())
}
