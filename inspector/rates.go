package inspector

import (
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A table describes the ids that this process makes for one table.
type table struct {
	uidplugin.TableStats
	Rate  *float64      // ids per second since New or an earlier page, at least 10 s ago; nil if unknown
	Since time.Duration // how long ago that was
}

type rate struct {
	Table     string  `json:"table"`
	Generator string  `json:"generator"`
	PerSecond float64 `json:"ids_per_second"`
	Seconds   float64 `json:"of_seconds"`
}

func ratesOf(tables []table) []rate {
	rates := []rate{}
	for _, t := range tables {
		if t.Rate != nil {
			rates = append(rates, rate{t.Table, t.Generator, *t.Rate, t.Since.Seconds()})
		}
	}
	return rates
}

// A meter remembers counts of ids, to calculate rates. It is safe for concurrent use.
type meter struct {
	mu             sync.Mutex
	earlier, later counts
}

// The type counts has how many ids each source had made at one time.
type counts struct {
	at   time.Time
	made map[source]int64
}

// A source is the table and the generator to which a number in counts belongs.
type source struct{ table, generator string }

// apart is the minimum time between the two counts from which a rate is calculated.
const apart = 10 * time.Second

// The method tables adds the rates that are known to the tables in stats.
func (m *meter) tables(stats uidplugin.Stats) []table {
	now := counts{at: stats.Time, made: map[source]int64{}}
	for _, t := range stats.Tables {
		now.made[source{t.Table, t.Generator}] = t.Made
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.later.made == nil, now.at.Before(m.later.at): // called by New, or the clock was set back
		m.earlier, m.later = now, now
	case now.at.Sub(m.later.at) >= apart:
		m.earlier, m.later = m.later, now
	}
	tables := make([]table, len(stats.Tables))
	for i, t := range stats.Tables {
		tables[i].TableStats = t
		if seconds := now.at.Sub(m.earlier.at).Seconds(); seconds >= apart.Seconds() {
			rate := float64(t.Made-m.earlier.made[source{t.Table, t.Generator}]) / seconds
			tables[i].Rate, tables[i].Since = &rate, now.at.Sub(m.earlier.at)
		}
	}
	return tables
}
