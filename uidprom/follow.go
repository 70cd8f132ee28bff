// wing: follow

package uidprom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uidplugin/uidplugin/follow"
)

var (
	// ofFollowed exists for tables that are followed in this process, or that have refused a row of it.
	ofFollowed = []metric[follow.TableStats]{
		{"too_late_total", "Creates that a followed table has refused as too late.", counter,
			func(t *follow.TableStats) float64 { return float64(t.TooLate) }},
		{"followers", "Loops of Follow in this process.", gauge,
			func(t *follow.TableStats) float64 { return float64(t.Followers) }},
	}

	// ofFollower exists once a follower knows the published mark.
	ofFollower = []metric[follow.TableStats]{
		{"follow_delay_seconds", "How far the published mark of a followed table is behind the clock.", gauge,
			func(t *follow.TableStats) float64 { return t.Delay.Seconds() }},
	}
)

func (c *collector) describeFollowed(labels prometheus.Labels) {
	for _, m := range slices.Concat(ofFollowed, ofFollower) {
		c.descs[m.name] = describe(m.name, m.help, []string{"table"}, labels)
	}
}

func (c *collector) collectFollowed(to chan<- prometheus.Metric) {
	for _, t := range follow.Stats(c.db) {
		send(c, to, ofFollowed, &t, valid(t.Table))
		if t.Settled != 0 {
			send(c, to, ofFollower, &t, valid(t.Table))
		}
	}
}
