package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs the program twice on one file, as a newcomer does, and then with all steps.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	for i, want := range []string{"Run the example again", "The last order of the run before", "9. "} {
		var out bytes.Buffer
		if err := run(t.Context(), file, i == 2, &out); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, &out)
		}
		text := out.String()
		words := []string{want, "shop_customers", "worker id"}
		if i == 2 {
			words = append(words, "ErrFutureID", "SLOT  APPLICATION")
		} else if lines := strings.Count(text, "\n"); lines > 45 {
			t.Errorf("%d lines are more than a screen", lines)
		}
		for _, want := range words {
			if !strings.Contains(text, want) {
				t.Errorf("run %d does not show %q", i+1, want)
			}
		}
		if strings.Contains(text, "NOT larger") || i > 0 && !strings.Contains(text, ": larger.") {
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
	err := run(t.Context(), file, false, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "choose another file with -file") {
		t.Error(err)
	}
}
