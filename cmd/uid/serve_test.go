// wing: inspector

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The page is served under its prefix, finds ids, and ends with the command.
func TestServe_ShowsThePage(t *testing.T) {
	t.Parallel()

	d, _, r := sqliteShop(t)
	id := r.id
	ctx, stop := context.WithCancel(t.Context())
	address, served := io.Pipe()
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: served, env: func(string) string { return "" }, now: time.Now}
	code := make(chan int, 1)
	go func() {
		code <- a.run(ctx, []string{"serve", "--dsn", dsn(d), "--listen", "127.0.0.1:0", "--prefix", "/uid"})
	}()
	var page string
	if _, err := fmt.Fscanln(address, &page); err != nil || !strings.HasSuffix(page, "/uid/") {
		t.Fatalf("%q, %v", page, err)
	}
	go func() { _, _ = io.Copy(io.Discard, address) }()
	answer, err := http.Get(page + "id?format=json&id=" + id.String())
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	var found struct {
		Data struct{ Location struct{ Table string } }
	}
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	must(t, json.Unmarshal(body, &found))
	if answer.StatusCode != http.StatusOK || found.Data.Location.Table != "orders" {
		t.Errorf("%s: %s", answer.Status, body)
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}

// A web site cannot read the page by resolving its own name to this machine.
func TestServe_AnswersItsOwnHostsOnly(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(onlyHosts([]string{"UID.example.com", "[fd00::1]"}, http.NotFoundHandler()))
	t.Cleanup(server.Close)
	for host, want := range map[string]int{
		"127.0.0.1": http.StatusNotFound, "127.0.0.1:8080": http.StatusNotFound, "[::1]:80": http.StatusNotFound,
		"localhost": http.StatusNotFound, "LOCALHOST.:8080": http.StatusNotFound,
		"uid.example.com": http.StatusNotFound, "uid.Example.com.:443": http.StatusNotFound, "[fd00::1]:8080": http.StatusNotFound,
		"rebind.example": http.StatusForbidden, "rebind.example:8080": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
		"uid.example.com.evil": http.StatusForbidden, "localhost.evil": http.StatusForbidden, "127.0.0.1.evil": http.StatusForbidden,
		"[fd00::2]": http.StatusForbidden, "0.0.0.0": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		must(t, err)
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want || want == http.StatusForbidden && !strings.Contains(string(body), "--host") {
			t.Errorf("%s: %s: %s", host, answer.Status, body)
		}
	}
}

// Many requests at once leave connections to the application.
func TestServe_HasFewConnections(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		shop(t, d.Open(t, nil), "web-1", "first")
		a := &app{dsn: dsn(d), timeout: time.Minute, env: func(string) string { return "" }, now: time.Now}
		open, err := a.open(t.Context(), reads)
		must(t, err)
		defer open.close()
		page, err := open.page(t.Context(), "/")
		must(t, err)
		var requests sync.WaitGroup
		for range 50 {
			requests.Go(func() {
				answer := httptest.NewRecorder()
				page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/sessions", http.NoBody))
				if answer.Code != http.StatusOK && answer.Code != http.StatusServiceUnavailable { // 503: too many requests
					t.Errorf("%d: %s", answer.Code, answer.Body)
				}
			})
		}
		requests.Wait()
		if s := open.pool.Stats(); s.MaxOpenConnections != maxConnections || s.OpenConnections > maxConnections {
			t.Errorf("%+v", s)
		}
	}, "sqlite", "mariadb", "postgres")
}

// If the page cannot be served, the command returns an error.
func TestServe_RefusesAnAddressOrPrefixThatCannotBe(t *testing.T) {
	t.Parallel()

	_, _, r := sqliteShop(t)
	r.run("serve", "--listen", "nowhere:1:2").want(t, 2, "nowhere")
	r.run("serve", "--listen", "127.0.0.1:0", "--prefix", "uid").want(t, 2, "--prefix", `"uid"`)
}
