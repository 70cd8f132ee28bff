// Uid answers questions about ids of uidplugin on the command line. It decodes numbers, finds their table, process and
// row, lists slots and sessions, and checks databases. It also makes ids for seeds and raw SQL.
//
//	go install github.com/uidplugin/uidplugin/cmd/uid@latest
//	uid help
//
// docs/command.md shows each command.
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

// untilSignal returns a context that ends with the first signal; a second signal ends the program at once. Use it for
// commands that should clean up. A signal ends all other commands at once, even while they wait for input or a server.
func untilSignal(ctx context.Context) (child context.Context, stop context.CancelFunc) {
	child, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(child, stop)
	return child, stop
}
