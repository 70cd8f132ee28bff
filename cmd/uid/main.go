// Uid answers questions about ids of uidplugin on the command line: what a number means, which table, process and row
// it belongs to, which processes hold which slots, and what is wrong with a database. It also makes ids for seeds and
// raw SQL.
//
//	go install github.com/uidplugin/uidplugin/cmd/uid@latest
//	uid help
//
// docs/command.md shows each command. To leave out a driver, build with the tag no_mysql, no_postgres or no_sqlite.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	os.Exit(runMain())
}

// runMain returns the exit code, so that what is open gets closed.
func runMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, now: time.Now}
	return a.run(ctx, os.Args[1:])
}
