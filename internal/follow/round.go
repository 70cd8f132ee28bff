package follow

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Step is the next thing to do in a [Round].
type Step int

// The steps of a round, in their order; doc.go tells what gates are.
const (
	Raise    Step = iota // raise the mark: the trigger refuses ids below it from now on
	PassIdle             // pass the gate that new transactions do not use
	PassUsed             // send new transactions to the other gate, and pass the gate that they have used
	Publish              // store the mark for followers
	Done
)

// A Round raises a mark and publishes it; see doc.go. It uses one connection. After an error begin another round,
// because a failover may lose the mark.
type Round struct {
	Mark int64
	Step Step
}

// Passed advances the round after its step has succeeded.
func (r *Round) Passed() {
	if r.Step < Done {
		r.Step++
	}
}

// A State is what one statement has read about a followed table.
type State struct {
	Published int64  // all rows with smaller ids are visible or will never be
	Recent    string // the marks that were published before, the latest first; see remember
	Slack     time.Duration
	Trigger   string    // identity of the trigger that was installed
	Found     string    // identity of the trigger that the table has now; empty if it has none
	Closer    string    // name of the process that raises the mark, see doc.go
	Until     time.Time // end of its turn, by the database's clock
	Now       time.Time // the database's clock
	Next      int64     // the lowest id of a visible row that is not below Published; 0 if there is none
}

// A Plan is the decision about a [State].
type Plan struct {
	Mark int64 // the mark to raise and publish; 0 to do nothing
	Take bool  // become the closer, or remain it, before the round
}

// turn is how long one claim makes a process the closer.
const turn = 5 * time.Second

// decide returns the plan of the process me. The arguments asked and answered are times of its clock: right before it
// sent the query of the state, and after the result. The mark follows the database's clock, but only while both clocks
// agree within the slack or minApart, because a clock an hour ahead would make the table refuse an hour's ids.
func decide(s State, layout generator.Layout, me string, asked, answered time.Time) (Plan, error) {
	if err := s.check(); err != nil {
		return Plan{}, err
	}
	latest, err := MarkAt(layout, s.Now.Add(max(s.Slack, minApart)))
	if err != nil {
		return Plan{}, err
	}
	if s.Published > latest {
		return Plan{}, fmt.Errorf("%w: the published mark %d is in the future by the database's clock, so no other can be published, and"+
			" the table refuses ids below it; set that clock if it is behind, otherwise run uid follow reset", workernode.ErrClock, s.Published)
	}
	mine := s.Closer == me
	if left := s.Until.Sub(s.Now); !mine && 0 < left && left <= turn { // if more is left, the clock was set back
		return Plan{}, nil
	}
	if apart := max(s.Now.Sub(answered), asked.Sub(s.Now)); apart > max(s.Slack, minApart) {
		return Plan{}, fmt.Errorf("%w: it differs from the database's by %v, and the slack is %v; synchronize the clocks",
			workernode.ErrClock, apart.Round(time.Millisecond), s.Slack)
	}
	mark, err := MarkAt(layout, s.Now.Add(-s.Slack))
	if err != nil {
		return Plan{}, err
	}
	recent, err := MarkAt(layout, s.Now.Add(-s.Slack-idleRound))
	if err != nil {
		return Plan{}, err
	}
	waiting := s.Next > 0 && s.Next < mark
	if !waiting && s.Published >= recent || mine && mark <= s.Published {
		return Plan{}, nil
	}
	return Plan{Mark: max(mark, s.Published), Take: !mine || s.Until.Sub(s.Now) < turn/2}, nil
}

// idleRound is the time between rounds while no row waits to be published.
const idleRound = 5 * time.Second

// Pause returns how long to wait before the state is read again. busy means that a row came within the last minute.
func (s State) Pause(layout generator.Layout, busy bool) time.Duration {
	if !busy {
		return time.Second
	}
	pause := min(max(s.Slack/10, 10*time.Millisecond), 50*time.Millisecond)
	if s.Next == 0 {
		return pause
	}
	p, err := layout.Decompose(s.Next)
	if err != nil {
		return pause
	}
	if due := p.Time.Add(layout.Tick + s.Slack).Sub(s.Now); due > 0 { // if not, only the next round is missing
		pause = min(pause, max(due, time.Millisecond))
	}
	return pause
}

// minApart is a difference of clocks that is always allowed, because clocks of two machines are never equal.
const minApart = 250 * time.Millisecond

// check returns an error if the trigger is not the one that was installed.
func (s State) check() error {
	switch {
	case s.Found == "":
		return fmt.Errorf("%w: its trigger is gone, so rows may have come unnoticed; call follow.Enable again, and compare"+
			" the rows since then (on MySQL and MariaDB also check that the account has the privilege TRIGGER)", ErrNotEnabled)
	case s.Found != s.Trigger:
		return fmt.Errorf("%w: its trigger was replaced (it is %s, and %s was installed), so rows may have come unnoticed; "+
			"call follow.Enable again, and compare the rows since then", ErrNotEnabled, s.Found, s.Trigger)
	}
	return nil
}

// MarkAt returns the smallest id of the tick at the time t. Ids of earlier ticks are lower.
func MarkAt(layout generator.Layout, t time.Time) (int64, error) {
	if t.Before(layout.Epoch) {
		t = layout.Epoch
	}
	return layout.Compose(generator.Parts{Time: t})
}

// A Cursor is how far a follower has read: every row up to Last was returned.
type Cursor struct {
	Last int64
}

// Bounds returns the exclusive bounds of the ids to read, and reports whether there can be ids between them.
func (c Cursor) Bounds(published int64) (above, below int64, any bool) {
	return c.Last, published, published > c.Last+1
}

// Read moves the cursor after rows below the mark published were read: to the last row or, if there were fewer rows
// than limit, to the id before the mark. A row with the id of the mark itself may still be inserted.
func (c *Cursor) Read(last int64, rows, limit int, published int64) {
	if rows > 0 {
		c.Last = last
	}
	if rows < limit {
		c.Last = max(c.Last, published-1)
	}
}

// lost reports whether the database has lost a mark: the cursor was below a published mark, but is not below the
// one that is published now. A mark of 0 shows no loss, because tables begin with it.
func (c Cursor) lost(published int64) bool { return 0 < published && published <= c.Last }

// lost reports whether the database has lost commits since a process last read the published mark, which was
// lastSeen. It returns the mark that the database had after the loss. If higher marks were published since, it
// finds the loss because lastSeen is missing among the recent marks.
func (s State) lost(lastSeen int64) (recovered int64, ok bool) {
	if s.Published <= lastSeen {
		return s.Published, 0 < s.Published && s.Published < lastSeen
	}
	mark := s.Published
	for rest := s.Recent; rest != ""; {
		end := strings.IndexFunc(rest, unicode.IsUpper)
		if end < 0 {
			break // somebody has written something else
		}
		less, err := strconv.ParseInt(rest[:end], 36, 64)
		if err != nil {
			break
		}
		mark -= less << (rest[end] - 'A')
		if mark <= lastSeen {
			return mark, 0 < mark && mark < lastSeen
		}
		rest = rest[end+1:]
	}
	return 0, false // lastSeen is too old for Recent
}

// remember returns the new Recent when the published mark rises by the number step. An entry is the difference of
// two neighbouring marks: a number in base 36, and a letter for how often to double it. Marks are the first ids of
// ticks, so a difference ends with many zero bits, and an entry has only two or three characters.
func remember(step int64, recent string) string {
	doubled := min(bits.TrailingZeros64(uint64(step)), 'Z'-'A')
	recent = strconv.FormatInt(step>>doubled, 36) + string(rune('A'+doubled)) + recent
	if len(recent) > recentLength {
		recent = recent[:strings.LastIndexFunc(recent[:recentLength], unicode.IsUpper)+1]
	}
	return recent
}

// recentLength is the largest number of characters of Recent. While rows are inserted, that is enough for the marks
// of about 15 s. With a slack below 500 ms it is enough for less, because there are more rounds.
const recentLength = 1000
