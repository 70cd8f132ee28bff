package follow

import (
	"encoding/json"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"gorm.io/gorm"
)

// TableStats is the state of a followed table, as far as this process knows. In JSON, durations and errors are texts.
type TableStats struct {
	Table     string        `json:"table"`
	TooLate   int64         `json:"too_late"`  // creates of this process that failed with [ErrTooLate]
	Followers int           `json:"followers"` // loops of [Rows], and consumers that work, in this process
	Settled   uidplugin.ID  `json:"settled"`   // the table is complete below this id; 0 without followers, or if unknown
	Delay     time.Duration `json:"-"`         // how far Settled is behind the clock, slack included; 0 without Settled
	LastError error         `json:"-"`         // why Settled does not advance; nil if it does

	Consumers []ConsumerStats `json:"consumers,omitempty"` // calls of [Consume] in this process
}

// ConsumerStats is the state of a consumer in this process. In JSON, the error is a text.
type ConsumerStats struct {
	Consumer  string       `json:"consumer"`
	Works     bool         `json:"works"`   // this process handles the rows; otherwise it stands by
	Paused    bool         `json:"paused"`  // by an operator
	Last      uidplugin.ID `json:"last"`    // every row up to it is known to be handled, skipped or left out
	Handled   int64        `json:"handled"` // rows that this process has handled
	Failed    int64        `json:"failed"`  // failures of the handler in this process
	Skipped   int64        `json:"skipped"` // rows for which the handler in this process has returned [Skip]
	Stuck     uidplugin.ID `json:"stuck"`   // the row that fails again and again; 0 if none does
	LastError error        `json:"-"`       // why the consumer cannot go on; nil if it can

	// Delay is how far the handled rows are behind the clock, slack included. It is 0 unless Works is true.
	Delay time.Duration `json:"-"`
}

// MarshalJSON writes the duration and the error as text.
func (s ConsumerStats) MarshalJSON() ([]byte, error) {
	type plain ConsumerStats
	return json.Marshal(struct {
		plain
		Delay     string `json:"delay"`
		LastError string `json:"last_error,omitempty"`
	}{plain(s), s.Delay.String(), textOf(s.LastError)})
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// MarshalJSON writes the duration and the error as text.
func (s TableStats) MarshalJSON() ([]byte, error) {
	type plain TableStats
	return json.Marshal(struct {
		plain
		Delay     string `json:"delay"`
		LastError string `json:"last_error,omitempty"`
	}{plain(s), s.Delay.String(), textOf(s.LastError)})
}

// Stats returns the states of the tables that this process follows through the plugin of db, or that have refused a row
// of this process, in alphabetical order. It sends no statement. It returns nil for a handle without the plugin.
func Stats(db *gorm.DB) (all []TableStats) {
	c, err := core.Of(db)
	if err != nil {
		return nil
	}
	now, consumers := c.Clock(), core.Value[engine.Followed](c).Consumers()
	behind := func(id int64) time.Duration {
		parts, err := c.Layout.Decompose(id)
		if err != nil || id <= 0 {
			return 0
		}
		return max(now.Sub(parts.Time), 0)
	}
	for _, t := range core.Value[engine.Followed](c).Tables() {
		s := TableStats{t.Table, t.TooLate, t.Followers, uidplugin.ID(t.Settled), behind(t.Settled), t.Err, nil}
		for _, c := range consumers {
			if c.Table != t.Table {
				continue
			}
			one := ConsumerStats{c.Consumer, c.Holds, c.Paused, uidplugin.ID(c.Last), c.Handled, c.Failed, c.Skipped,
				uidplugin.ID(c.StuckID), c.Err, 0}
			if c.Holds {
				one.Delay = behind(c.Passed)
			}
			s.Consumers = append(s.Consumers, one)
		}
		all = append(all, s)
	}
	return all
}
