package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestRun(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	if err := run(t.Context(), &out, dsns{}); err != nil {
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

// Shards can be databases of MySQL, and again after the first run has made the tables.
func TestRun_OnServers(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		dsns := dsns{registry: d.DSN(), shards: []string{d.New(t).DSN(), d.New(t).DSN()}}
		for range 2 {
			var out bytes.Buffer
			if err := run(t.Context(), &out, dsns); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			testkit.SaysAll(t, out.String(), "  shard1  Ada  ", "  shard2  Dot of customers\n", `is of the database "shard2"`)
		}
	}, "mariadb", "mysql")
}

func TestRun_RefusesARegistryWithoutShards(t *testing.T) {
	t.Parallel()

	testkit.IsError(t, run(t.Context(), &bytes.Buffer{}, dsns{registry: "x"}), nil, "-shard")
}
