package uidplugin

import (
	"fmt"
	"time"
)

// A FollowOption changes [Plugin.EnableFollow] or [Follow].
type FollowOption func(*followOptions)

type followOptions struct {
	slack  time.Duration
	rewind bool
	locked bool
	of     string // the function that the last option is for
}

// WithSlack is for EnableFollow. It sets how old an id may be when its INSERT arrives; older ones are refused with
// [ErrTooLate]. Followers see rows this much later. The default is a second, and the least is 20 ms or a tick of the
// layout. Choose more than the time from making an id to its INSERT, including differences between clocks.
func WithSlack(d time.Duration) FollowOption {
	return func(o *followOptions) { o.slack, o.of = d, "EnableFollow" }
}

// WithRewind is for Follow. If the database has lost commits, as after the failover to a replica that was behind, rows
// that Follow has returned may be gone, and rows may be inserted below its cursor. With this option Follow then goes back
// to the last published mark that it finds in the database, so that it misses no row that survives, but returns some
// rows again.
func WithRewind() FollowOption {
	return func(o *followOptions) { o.rewind, o.of = true, "Follow" }
}

// WithRowLocks is for Follow on MySQL and MariaDB. It reads rows with shared locks, and so waits for XA transactions that
// are prepared. InnoDB forgets that these transactions write to a followed table, so without this option their rows are
// missed.
func WithRowLocks() FollowOption {
	return func(o *followOptions) { o.locked, o.of = true, "Follow" }
}

func followOptionsOf(of string, options []FollowOption) (o followOptions, err error) {
	for _, option := range options {
		if option == nil {
			continue
		}
		option(&o)
		if o.of != of {
			return o, fmt.Errorf("%w: WithSlack is an option of EnableFollow, WithRewind and WithRowLocks are options of Follow", ErrOption)
		}
	}
	return o, nil
}
