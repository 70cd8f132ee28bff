package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The page is there under its prefix, finds ids and ends with the command.
func TestServe_ShowsThePage(t *testing.T) {
	t.Parallel()

	d := testkit.Engine{Name: "sqlite"}.New(t)
	id := shop(t, d.Open(t, nil), "web-1", "first")[0]
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

// What cannot be served is an error, not a page that is nowhere.
func TestServe_RefusesAnAddressOrPrefixThatCannotBe(t *testing.T) {
	t.Parallel()

	d := testkit.Engine{Name: "sqlite"}.New(t)
	shop(t, d.Open(t, nil), "web-1", "first")
	r := runner{t: t, dsn: dsn(d)}
	r.run("serve", "--listen", "nowhere:1:2").want(t, 2, "nowhere")
	r.run("serve", "--listen", "127.0.0.1:0", "--prefix", "uid").want(t, 2, "--prefix", `"uid"`)
}
