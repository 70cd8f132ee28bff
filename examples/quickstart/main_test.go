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
	for i, want := range []string{"Run the example again.", "There are rows of earlier runs."} {
		var out bytes.Buffer
		if err := run(t.Context(), file, &out); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, &out)
		}
		text := out.String()
		for _, want := range []string{want, "9. ", "ErrFutureID", "shop_categories", "SLOT  APPLICATION"} {
			if !strings.Contains(text, want) {
				t.Errorf("run %d does not show %q", i+1, want)
			}
		}
		if strings.Contains(text, "NOT larger") || i == 1 && strings.Count(text, "  larger\n") != len(models) {
			t.Errorf("run %d: ids do not ascend", i+1)
		}
		if t.Failed() {
			t.Fatal(text)
		}
	}
}

// A newcomer whose file is something else learns what to do.
func TestRun_NamesTheFlagForAnotherFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("Dear reader, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), file, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "choose another file with -file") {
		t.Error(err)
	}
}
