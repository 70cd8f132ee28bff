// wing: inspector

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/inspector"
)

func (a *app) serveCommand() *cobra.Command {
	var address, prefix string
	var hosts []string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the page of package inspector",
		Long: `serve serves the page of package inspector, which shows ids, and the slots, tables and sessions of all
processes. It only reads, and makes no ids. The health on the page is that of this command, not of your processes.
By default it listens on this machine only, because it does not authenticate its users. If you set
--listen, put it behind a proxy that authenticates.

It accepts requests for localhost and for the address at which it listens. For any other name, such as a proxy's,
pass --host. All other names are refused, because a web site could point its own name at this machine and read the
page in a browser.`,
		Example: `  uid serve --listen 127.0.0.1:8080
  uid serve --host uid.example.com`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !strings.HasPrefix(prefix, "/") {
				return fmt.Errorf("--prefix %q must begin with a slash", prefix)
			}
			prefix = strings.TrimRight(prefix, "/") + "/"
			return a.with(c.Context(), reads, func(d *database) error {
				page, err := d.page(c.Context(), prefix)
				if err != nil {
					return err
				}
				if name, _, err := net.SplitHostPort(address); err == nil && name != "" {
					hosts = append(hosts, name)
				}
				return a.serve(c.Context(), address, prefix, onlyHosts(hosts, page))
			})
		},
	}
	c.Flags().StringVar(&address, "listen", "127.0.0.1:8080", "address to listen at")
	c.Flags().StringSliceVar(&hosts, "host", nil, "further host names or addresses of the page, separated by commas")
	c.Flags().StringVar(&prefix, "prefix", "/", "path of the page")
	return c
}

// maxConnections limits the connections of the page to the database.
const maxConnections = 4

func (d *database) page(ctx context.Context, prefix string) (http.Handler, error) {
	d.pool.SetMaxOpenConns(maxConnections)
	if _, err := d.Plugin(ctx); err != nil {
		return nil, err
	}
	return inspector.New(d.gorm, inspector.WithPrefix(prefix))
}

// onlyHosts accepts only requests for the loopback interface, the address of the connection, and the given hosts.
// Otherwise a web site could read the answers by DNS rebinding: its script requests the site's own name, and the
// site's DNS server gives the address of this machine for this name.
func onlyHosts(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		ip := net.ParseIP(host)
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		own := ip != nil && (ip.IsLoopback() || local != nil && ip.Equal(local.IP))
		named := func(name string) bool { return hostOf(name) == host }
		if !own && host != "localhost" && !slices.ContainsFunc(hosts, named) {
			http.Error(w, fmt.Sprintf("The host %q is not allowed. To allow it, start uid serve with --host %[1]s.",
				clean(shorten(host, 100))), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf returns a host without port, IPv6 brackets and trailing dot.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// serve serves until ctx ends or the program gets a signal.
func (a *app) serve(ctx context.Context, address, prefix string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      a.timeout + 10*time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ctx, restore := untilSignal(ctx)
	defer restore()
	fmt.Fprintf(a.err, "http://%s%s\n", listener.Addr(), prefix)
	if at, ok := listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		fmt.Fprintln(a.err, "Other machines can reach this address, and the page does not authenticate its users.")
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
	if server.Shutdown(ending) != nil { // an answer takes longer than 5 s
		return server.Close()
	}
	return nil
}
