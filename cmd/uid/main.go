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
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, now: time.Now}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}

// untilSignal returns a context that ends with the first signal to end the program; a second one ends the program at
// once. It is for what leaves something behind. Everything else a signal ends at once, also while it waits for input or
// for a server.
func untilSignal(ctx context.Context) (until context.Context, stop context.CancelFunc) {
	until, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(until, stop)
	return until, stop
}
