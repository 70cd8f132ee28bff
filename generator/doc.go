// Package generator makes unique 64-bit ids that ascend in time. It knows nothing of databases and needs only the
// standard library.
//
// # What an id looks like
//
// A [Layout] says how many bits hold the time, the worker id and the sequence, how long one tick is, and from which
// instant on ticks are counted. [DefaultLayout] is for new ids, [JSSafeLayout] for ids that a JavaScript number holds.
// [Layout.Decompose] splits an id, [Layout.Range] finds the ids of a time span, [Layout.Picture] draws the bits, and
// [Plan] tells how long a layout lasts and how many processes it serves.
//
// # Who may make an id
//
// A generator may stamp only what its [Lease] allows: one worker id, and a span of ticks. Ids are unique as long as no
// two generators ever hold the same worker id for the same tick. The granter of leases guarantees that; package
// workernode is one. A [Renewable] generator accepts other leases while it runs. A generator that accepts several at
// once has lanes: each adds the ids of a worker id to every tick.
//
// # How ids are made
//
//   - [Cached] hands them out ahead of need, for the price of an atomic increment. The clock may do what it likes.
//   - [Snowflake] reads the clock for each id, as Twitter's Snowflake and Leaf do.
//   - [Paired] has a second worker id for the time that the clock was set back.
//   - [Buffered] stores ids that any source makes: of UidGenerator with [TickSource], or of another service.
//
// All of them may be called by any number of goroutines at once. [Generator] says what they promise.
package generator
