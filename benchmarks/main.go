// Command benchmarks measures uidplugin and its alternatives. It keeps the figures in benchmarks/results, and writes
// the tables and charts of docs/benchmarks.md. Run it in the root folder of the repository, on an idle machine:
//
//	make compare                      everything, in about an hour on two CPUs
//	make compare SHORT=1              less of everything, in less than 10 minutes, into benchmarks/short
//	go run ./benchmarks -run order    one part; the other tables stay
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// roles are the functions of child processes.
var roles = testkit.Roles{"insert": testkit.Role(insertRows), "import": testkit.Role(importRows),
	"start": testkit.Role(startAndReport)}

func main() {
	testkit.RunRole(roles)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := compare(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// compare measures the parts that the arguments name, and writes the page.
func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	short := flags.Bool("short", false, "measure less, in less than 10 minutes, and write to benchmarks/short")
	run := flags.String("run", "", "parts to measure, with commas between them: "+strings.Join(names(), ",")+
		"; all if empty")
	render := flags.Bool("render", false, "measure nothing, and write the tables and charts again")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l := &Lab{Sizes: Whole(), Engines: []string{"mariadb", "mysql", "postgres"}, Log: os.Stderr, Begun: time.Now()}
	dest := place{"docs/benchmarks.md", "docs/benchmarks", "benchmarks/results"}
	if *short {
		l.Sizes = Short()
		dest = place{"benchmarks/short/benchmarks.md", "benchmarks/short/benchmarks", "benchmarks/short/results"}
	} else if _, err := os.Stat("go.work"); err != nil {
		return fmt.Errorf("run this in the root folder of the repository: %w", err)
	}
	var failed error // if a part fails, the others are measured anyway
	if !*render {
		failed = measure(ctx, l, *run, dest)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := write(dest)
	l.Say("wrote %s", dest.page)
	return errors.Join(failed, err)
}

func measure(ctx context.Context, l *Lab, list string, dest place) (failed error) {
	wanted := names()
	if list != "" {
		wanted = strings.Split(list, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("part %q does not exist, use one of %s", name, strings.Join(names(), ", "))
		}
	}
	if err := os.MkdirAll(dest.results, 0o777); err != nil {
		return err
	}
	for _, p := range parts {
		if slices.Contains(wanted, p.name) && ctx.Err() == nil {
			failed = errors.Join(failed, p.measure(ctx, l, dest))
		}
	}
	return errors.Join(failed, ctx.Err())
}
