package follow

import (
	"context"
	"fmt"
	"math"
	"time"
)

// noticeLoss remembers the lowest mark to which the database of the table has gone back. It forgets that mark when
// the Mark of the cursor has changed, because a process has then gone back or read rows, or an operator has set the
// cursor. Losses from before this process read rows show in the cursor's Mark. Without c.Space, noticeLoss
// remembers nothing: the cursor and the mark are in one database, which loses the latest commits of both together.
func (c *consuming[T]) noticeLoss() {
	begins := c.looked == nil || c.Space == nil
	if mark := c.process.Row().Mark; begins || mark != c.lowestOf {
		if c.lowestOf, c.lowest = mark, math.MaxInt64; mark < 0 && c.Space != nil {
			c.lowest = -mark
		}
	}
	if begins {
		c.losses = len(c.news.recovered)
	}
	for ; c.losses < len(c.news.recovered); c.losses++ {
		c.lowest = min(c.lowest, c.news.recovered[c.losses])
	}
}

// recovered returns the mark that the database had after it lost commits. It returns 0 if no commits were lost, or
// if the mark is above the cursor, because then no row is missed.
func (c *consuming[T]) recovered(ctx context.Context, last, published int64) (int64, error) {
	if c.Poll {
		return 0, nil
	}
	lowest := c.lowest
	if (Cursor{last}).lost(published) && !c.setAhead(last) {
		lowest = min(lowest, published)
	}
	if c.Space != nil { // the loss may be from before this process read rows
		state, err := c.mark.recent(ctx)
		if err != nil {
			return 0, err
		}
		seen := c.process.Row().Mark
		if seen < 0 {
			seen = -seen
			lowest = min(lowest, seen)
		}
		if mark, lost := state.lost(seen); lost {
			lowest = min(lowest, mark)
		}
	}
	if lowest > last {
		lowest, c.lowest = 0, math.MaxInt64
	}
	return lowest, nil
}

// goBack makes the consumer go back to a mark, or ends it with an error. If the cursor is in another database,
// MARK in UID_CURSOR is the negative of that mark until the consumer has gone back, so every process finds it.
func (c *consuming[T]) goBack(mark int64) error {
	if !c.Rewind {
		return fmt.Errorf("%w: the cursor is the id %d, but the mark went back to %d: set the cursor to a time before that mark (uid follow consumers reset)",
			errLost, c.process.Row().Last, mark)
	}
	c.log.Warn("uidplugin: a consumer goes back because the database of its table has lost commits", "to", mark-1)
	c.process.Rewind(mark)
	return nil
}

// setAhead reports whether a cursor is above the mark because an operator or the application has set it to about
// now. Lost commits leave no such cursor: in the table's database the cursor goes back with the mark, and in
// another database the Mark of the cursor is not 0.
func (c *consuming[T]) setAhead(last int64) bool {
	latest, err := MarkAt(c.mark.layout, time.UnixMilli(c.now()).Add(10*time.Second))
	return (c.Space == nil || c.process.Row().Mark == 0) && err == nil && last < latest
}
