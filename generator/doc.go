// Package generator makes unique 64-bit ids that ascend in time. It knows nothing of databases and needs only the
// standard library.
//
// # The parts of an id
//
// A [Layout] has the widths of the time, the worker id and the sequence, the length of a tick, and the epoch, from
// which ticks are counted. [DefaultLayout] is for new ids, [JSSafeTablesLayout] for ids that a JavaScript number holds.
// [Layout.Decompose] splits an id, and [Layout.Range] finds the ids of a time span. Package capacity computes how long
// a layout lasts and how many processes it serves, and draws the bits of an id.
//
// # Who may make an id
//
// A generator may stamp only one worker id and a span of ticks: its [Lease]. Ids are unique as long as no two
// generators ever hold the same worker id for the same tick. The granter of leases, such as package workernode,
// guarantees that. A [Renewable] generator accepts other leases while it runs. A generator that accepts several at once
// has lanes: each adds the ids of a worker id to every tick.
//
// # How ids are made
//
//   - [Cached] gets ids ready before callers ask, so a call costs one atomic increment. The clock may jump, because
//     only its forward progress counts.
//   - [Snowflake] reads the clock for each id, as Twitter's Snowflake and Leaf do.
//   - [Paired] uses a second worker id while the first has used up its tick, or while the clock is behind.
//   - [Buffered] stores ids that any source makes, such as another service or your own code.
//
// Any number of goroutines may call one generator at once. [Generator] documents what all of them guarantee.
package generator
