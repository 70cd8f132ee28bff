package inspector

import (
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A table is the state of the ids of one table in this process.
type table struct {
	uidplugin.TableStats
	Rate *float64 // ids a second since an earlier look, 10 s ago or more; nil if there was none
}

// A rate is how many ids a second one table gets in this process.
type rate struct {
	Table     string  `json:"table"`
	Generator string  `json:"generator"`
	PerSecond float64 `json:"ids_per_second"`
}

// ratesOf returns the rates that are known.
func ratesOf(tables []table) []rate {
	rates := []rate{}
	for _, t := range tables {
		if t.Rate != nil {
			rates = append(rates, rate{t.Table, t.Generator, *t.Rate})
		}
	}
	return rates
}

// A meter remembers how many ids were made, to say how many there are a second. It may be used concurrently.
type meter struct {
	mu             sync.Mutex
	earlier, later counts
}

// counts are how many ids were made until a time.
type counts struct {
	at   time.Time
	made map[source]int64
}

// A source is what ids are counted of.
type source struct{ table, generator string }

// apart is how far two looks must be apart for their difference to be a rate.
const apart = 10 * time.Second

// tables returns the tables of stats with their rates.
func (m *meter) tables(stats uidplugin.Stats) []table {
	now := counts{at: stats.Time, made: map[source]int64{}}
	for _, t := range stats.Tables {
		now.made[source{t.Table, t.Generator}] = t.Made
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.later.made == nil, now.at.Before(m.later.at): // the first look, or the clock was set back
		m.earlier, m.later = now, now
	case now.at.Sub(m.later.at) >= apart:
		m.earlier, m.later = m.later, now
	}
	tables := make([]table, len(stats.Tables))
	for i, t := range stats.Tables {
		tables[i].TableStats = t
		if seconds := now.at.Sub(m.earlier.at).Seconds(); seconds >= apart.Seconds() {
			rate := float64(t.Made-m.earlier.made[source{t.Table, t.Generator}]) / seconds
			tables[i].Rate = &rate
		}
	}
	return tables
}
