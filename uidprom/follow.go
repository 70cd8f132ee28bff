// wing: follow

package uidprom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uidplugin/uidplugin/follow"
)

var (
	// ofFollowed lists metrics of tables that this process follows, or that have refused a row of this process.
	ofFollowed = []metric[follow.TableStats]{
		{"too_late_total", "Creates that a followed table has refused as too late.", counter,
			func(t *follow.TableStats) float64 { return float64(t.TooLate) }},
		{"followers", "Loops of follow.Rows, and consumers that work, in this process.", gauge,
			func(t *follow.TableStats) float64 { return float64(t.Followers) }},
	}

	// ofFollower lists metrics that exist once a follower knows the published mark, below which no new rows come.
	ofFollower = []metric[follow.TableStats]{
		{"follow_delay_seconds", "How far the published mark of a followed table is behind the clock.", gauge,
			func(t *follow.TableStats) float64 { return t.Delay.Seconds() }},
	}

	// ofConsumer lists metrics that exist in the process that handles the rows of a consumer.
	ofConsumer = []metric[follow.ConsumerStats]{
		{"consumer_stuck", "1 if a row of a consumer fails again and again, so later rows wait for it; otherwise 0.", gauge, stuck},
		{"consumer_handled_total", "Rows that a consumer has handled in this process.", counter,
			func(c *follow.ConsumerStats) float64 { return float64(c.Handled) }},
	}

	// ofReader lists metrics that exist once the process that handles the rows knows how far the consumer has come.
	ofReader = []metric[follow.ConsumerStats]{
		{"consumer_delay_seconds", "How far the rows that a consumer has handled are behind the clock.", gauge,
			func(c *follow.ConsumerStats) float64 { return c.Delay.Seconds() }},
	}
)

func stuck(c *follow.ConsumerStats) float64 {
	if c.Stuck != 0 {
		return 1
	}
	return 0
}

func (c *collector) describeFollowed(labels prometheus.Labels) {
	for _, m := range slices.Concat(ofFollowed, ofFollower) {
		c.descs[m.name] = describe(m.name, m.help, []string{"table"}, labels)
	}
	for _, m := range slices.Concat(ofConsumer, ofReader) {
		c.descs[m.name] = describe(m.name, m.help, []string{"table", "consumer"}, labels)
	}
}

func (c *collector) collectFollowed(to chan<- prometheus.Metric) {
	for _, t := range follow.Stats(c.db) {
		send(c, to, ofFollowed, &t, valid(t.Table))
		if t.Settled != 0 {
			send(c, to, ofFollower, &t, valid(t.Table))
		}
		for _, one := range t.Consumers {
			if !one.Works {
				continue
			}
			send(c, to, ofConsumer, &one, valid(t.Table), valid(one.Consumer))
			if one.Delay != 0 {
				send(c, to, ofReader, &one, valid(t.Table), valid(one.Consumer))
			}
		}
	}
}
