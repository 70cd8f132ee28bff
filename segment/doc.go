// Package segment makes ids from a counter in the database, a range at a time. It implements the segment mode of
// Meituan's Leaf on Leaf's table. Ids are small, start where the operator wants, and do not depend on a clock. In
// return, a process that cannot reach the database stops making ids once its ranges are used up.
//
// With the plugin, use the tag gorm:"uid:segment", and configure it with the option WithSegments. Without the plugin,
// call [Open]. Both create the table leaf_alloc if it is missing.
//
//	leaf_alloc                     buffer of this process
//	biz_tag  max_id  step          present range    next range
//	orders   7001    2000          3001 ... 5000    5001 ... 7000
//	           │                     └─ from 10 % on: fetch the next one
//	           └─ first id that nobody has fetched
//
// # Fetching
//
// To fetch n ids a process reads max_id, say m, and writes
//
//	UPDATE leaf_alloc SET max_id = m+n WHERE biz_tag = ? AND max_id = m
//
// If that changes one row, the process owns the ids from m to m+n-1. If it changes none, another process was faster, so
// the process reads again. Each statement is a transaction of its own, and no lock is held between them. The protocol
// holds even after a stale read, and on clusters, where we should not rely on locks. A row that the WHERE matches
// gets a larger max_id, so it does not matter whether the driver counts changed or matched rows. If the answer is
// lost, nobody uses the range, which leaves a gap.
//
// The process then reads max_id again on the same connection, because a trigger or a narrow column may have stored
// a smaller number, from which the next process would fetch the same ids. In that case the process discards the
// range, and the error wraps uidplugin.ErrTable.
//
// As in Leaf's code, max_id itself is still free, in spite of its name. So processes with this package and a Leaf
// service can share one row. Because two rows for one column would make duplicate ids, Open refuses a row whose max_id
// is not above the numbers of the column: see Config.Used.
//
// # Guarantees
//
//   - Ids are unique as long as max_id never goes back. The database must not lose acknowledged commits, as it
//     does when a backup is restored, or when a server that writes lazily crashes. A process that notices such a
//     loss logs it, and continues above its own ids.
//   - The ids of one process strictly ascend. Ids of several processes do not, because each has its own range: a row
//     created later may have the smaller id.
//   - A process that ends loses at most two ranges, and each lost answer loses one range.
//   - When Open returns, the first range is in memory.
//   - A caller that finds no id waits for the fetch (Leaf's callers fail at once), until its context ends, or for
//     Config.MaxWait if the context has no deadline. If the fetch fails, the caller gets the database's error.
//   - A failed fetch is repeated even if no caller waits. Until one succeeds, Health returns the reason and the time of
//     the first failure.
//
// # Sizes of ranges
//
// Ranges start with the step of the row, or with Config.Step if that is larger. If a range lasted less than 15 minutes,
// the next one is twice as large, up to Config.MaxStep. If it lasted 30 minutes or more, the next one is half as large,
// down to the size of the first. So most processes fetch every 15 to 30 minutes, and have ids for about the same
// time while the database is unreachable. If an operator changes the step of the row, all processes use it from
// their next fetch on, even if it is below Config.Step.
//
// Ids cannot be decoded, because they contain neither a process nor a time.
package segment
