package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/inspector"
)

func (a *app) serveCommand() *cobra.Command {
	var address, prefix string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the page of package inspector",
		Long: `serve shows the page of package inspector: ids, and the slots, tables and sessions of all processes. It makes no ids
itself, so its health is not theirs. It only reads, and it asks nobody who they are. So it listens on this machine only,
unless --listen says otherwise; then put it behind a proxy that authenticates.`,
		Example: "  uid serve --listen 127.0.0.1:8080",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !strings.HasPrefix(prefix, "/") {
				return fmt.Errorf("--prefix %q does not begin with a slash", prefix)
			}
			prefix = strings.TrimRight(prefix, "/") + "/"
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			if _, err := d.plugin(a); err != nil {
				return err
			}
			handler, err := inspector.New(d.db, inspector.WithPrefix(prefix))
			if err != nil {
				return err
			}
			return a.serve(c.Context(), address, prefix, handler)
		},
	}
	c.Flags().StringVar(&address, "listen", "127.0.0.1:8080", "the address")
	c.Flags().StringVar(&prefix, "prefix", "/", "the path under which the page is")
	return c
}

// serve serves until ctx ends.
func (a *app) serve(ctx context.Context, address, prefix string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: a.timeout + 10*time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ctx, restore := untilSignal(ctx)
	defer restore()
	fmt.Fprintf(a.err, "http://%s%s\n", listener.Addr(), prefix)
	if at, ok := listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		fmt.Fprintln(a.err, "Other machines can reach this address, and the page asks nobody who they are.")
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil { // an answer takes longer
		return server.Close()
	}
	return nil
}
