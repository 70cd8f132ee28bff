package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs the program twice on one file, as a newcomer does.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	for i, want := range [][]string{
		{
			"Run me again!",
		},
		{
			"There are rows of earlier runs. The last order before this one was made by\n", ", launched 20",
			"*main.Customer", "*main.Order", "*main.Item", "*main.Product", "*main.Category", " larger",
		},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-file", file}, &out); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, &out)
		}
		text := out.String()
		for _, want := range append(want, file,
			"1. ", "9. ",
			"bits   0    00",
			"table          shop_customers       shop_orders          shop_items\n",
			"ErrNegativeID", "ErrFutureID", "ErrUnknownID", "gorm.ErrRecordNotFound",
			"shop_categories", "WORKER_NODE", "This process holds slot ", "(spare)", "SLOT  APPLICATION",
		) {
			if !strings.Contains(text, want) {
				t.Errorf("run %d does not say %q", i+1, want)
			}
		}
		if strings.Contains(text, "NOT larger") || i == 1 && strings.Count(text, "  larger\n") != len(models) {
			t.Errorf("run %d: ids do not ascend", i+1)
		}
		for line := range strings.Lines(text) {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }) {
				t.Errorf("run %d: escape codes or the like: %q", i+1, line)
			}
			if len(line) > 81 && !strings.Contains(line, file) {
				t.Errorf("run %d: %d columns: %q", i+1, len(line)-1, line)
			}
		}
		if t.Failed() {
			t.Fatal(text)
		}
	}
}

// TestErrors checks that what goes wrong is said in words, with what to do.
func TestErrors(t *testing.T) {
	t.Parallel()

	noDatabase := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(noDatabase, []byte(strings.Repeat("Dear reader, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-file", noDatabase}, "-file FILE takes another"},
		{[]string{"-file", filepath.Join(noDatabase, "shop.db")}, "-file FILE takes another"},
		{[]string{"-dsn", "me:secret@tcp(127.0.0.1:1)/test?parseTime=true"}, "Does the server run"},
		{[]string{"-postgres", "host=127.0.0.1 port=1 user=me password=secret dbname=test"}, "Does the server run"},
		{[]string{"-dsn", "me:secret@tcp(127.0.0.1:1)/test"}, "parseTime=true"},
		{[]string{"-dsn", ""}, "-dsn is empty"},
		{[]string{"-dsn", "a", "-postgres", "b"}, "exclude each other"},
		{[]string{"-color"}, "-h explains"},
		{[]string{"shop.db"}, "-h explains"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tt.args, &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want something with %q", tt.args, err, tt.want)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, &out); err != nil || !strings.Contains(out.String(), "-postgres DSN") {
		t.Errorf("-h: %v\n%s", err, &out)
	}
}
