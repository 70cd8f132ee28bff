// Package generator makes unique 64-bit ids that ascend in time.
//
// Two independent things make up an id. A [Layout] says what an id looks like: how many bits hold the time, the worker
// id and the sequence, how long one tick is, and from which instant on ticks are counted. A [Generator] says how the
// ids are made: [Cached] hands them out ahead of need for the price of an atomic increment, [Snowflake] reads the clock
// for each id.
//
// A generator may stamp only what its [Lease] allows: one worker id, and a span of ticks. Ids are unique as long as no
// two generators ever hold the same worker id for the same tick. The granter of leases guarantees that; package
// workernode is one. Both generators are [Renewable]: they accept other leases while they run. [Cached] accepts several
// at once. Each of them is a lane, and adds the ids of a worker id to every tick.
//
// The package knows nothing of databases and needs only the standard library.
package generator
