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
	c, control := g.writers(), g.control()
	g.grants(3 * time.Second)

	for round := 0; (round == 0 || g.since() < *galeraFor) && !t.Failed(); round++ {
		pause, away := 8*time.Second, 8*time.Second
		if *galeraFor > 0 { // longer than all leases, and than the gap that docs/failures.md asks for
			pause, away = 24*time.Second, 14*time.Second
		}
		g.killed((2 + round) % 3)
		g.stopped((1+round)%3, pause, c, control)
		if control != nil {
			g.proves(control)
			control = nil
		}
		g.halved(round%3, away)
	}
	c.end()
	g.report(c)
}
