package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"  1 ids: 70001 to 70001\n", "250 ids: 70005 to 70254\n", "process 2: ", "after a hole of ",
		" 100 ids, from ", " 1600 ids, from ", "step to 300", " 300 ids, from ", "leaf_alloc says: max_id ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}
