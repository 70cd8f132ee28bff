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
	Followers int           `json:"followers"` // loops of [Rows] in this process
	Settled   uidplugin.ID  `json:"settled"`   // what followers know to be complete; 0 without followers, or if unknown
	Delay     time.Duration `json:"-"`         // how far the time of Settled is behind the clock, with the slack; 0 without Settled
	LastError error         `json:"-"`         // why Settled does not advance; nil if it does

	Consumers []ConsumerStats `json:"consumers,omitempty"` // those that this process runs, by name
}

// ConsumerStats is the state of a consumer, as far as this process knows. In JSON, durations and errors are texts.
type ConsumerStats struct {
	Consumer   string        `json:"consumer"`
	Working    bool          `json:"working"` // this process handles the rows; otherwise it stands by, or the consumer is paused
	LastID     uidplugin.ID  `json:"last_id"` // all rows up to it are handled or passed over
	Delay      time.Duration `json:"-"`       // how far that is behind the clock, with the slack; 0 unless Working
	StuckID    uidplugin.ID  `json:"stuck_id,omitzero"`
	StuckSince time.Time     `json:"stuck_since,omitzero"` // when the row StuckID failed first; zero if no row fails
	LastError  error         `json:"-"`                    // why it does not go on; nil if it does
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

// textOf returns the text of an error, which may be nil.
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

// Stats returns the states of the tables that are followed on a handle of this process, or that have refused a row of
// it, in alphabetical order. It sends no statement. It returns nil for a handle without the plugin.
func Stats(db *gorm.DB) (all []TableStats) {
	c, err := core.Of(db)
	if err != nil {
		return nil
	}
	now := c.Clock()
	for _, t := range core.Value[engine.Handle](c).Tables() {
		s := TableStats{Table: t.Table, TooLate: t.TooLate, Followers: t.Followers, Settled: uidplugin.ID(t.Settled), LastError: t.Err}
		if parts, err := c.Layout.Decompose(t.Settled); err == nil && t.Settled > 0 {
			s.Delay = max(now.Sub(parts.Time), 0)
		}
		all = append(all, s)
	}
	return all
}
