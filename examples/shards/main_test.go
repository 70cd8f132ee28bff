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
		"  shard1.db  Ada  ", "  shard4.db  Dot of customers\n", "  shard2.db  Fay of customers\n", "from slot 1\n", `is of the database "shard2.db", and this handle is of the database "shard1.db"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}
