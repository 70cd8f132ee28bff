//go:build linux

package chaos_test

import (
	"flag"
	"testing"
	"time"
)

var galeraFor = flag.Duration("galera.for", 0, "how long TestGalera goes on: its long form")

// Processes write to all three nodes of a Galera cluster, of which one is killed, one is stopped, and two are killed
// at once, so that the third one has no quorum. No id is made twice, and no tick of a worker id has ids of two
// processes. Controls that write without comparing do make duplicates.
//
// The long form:
//
//	go test -run 'TestGalera$' -v -timeout 0 ./integration/chaos/ -galera.for 5m
func TestGalera(t *testing.T) {
	t.Parallel()
	g := newGalera(t)
	g.disturb(*galeraFor, 8*time.Second, g.killed, g.halved)
}
