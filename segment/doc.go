// Package segment makes ids from a counter in the database, a range at a time. This is the segment mode of Meituan's
// Leaf, on Leaf's table. Ids are small, begin where the operator wants, and depend on no clock. In return a process
// that cannot reach the database makes no ids once it has used up its ranges.
//
// With the plugin, the tag gorm:"uid:segment" takes ids from here, and the option WithSegments configures it. [Open] is
// for use without the plugin. Both create the table leaf_alloc if it is missing.
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
// If that changes one row, the ids from m to m+n-1 are its own. If it changes none, another process was faster, and the
// process reads again. So each statement is a transaction of its own, and no lock is held between them. This is
// exact after a stale read and on clusters, where locks are not. The statement always changes the row, so it does
// not matter whether the driver counts changed rows or found ones. If its answer is lost, no process has the range: a
// hole.
//
// The ids from max_id on are free, as in Leaf's code, in spite of the column's name. Therefore processes with this
// package and a Leaf service can use one row at once. Two rows for one column would make ids twice. So Open refuses a new
// row for a column that has numbers, unless Config.Start says where to begin: see Config.Used.
//
// # What it promises
//
//   - No id is made twice, as long as max_id never goes back. The database must not lose what it has acknowledged, as a
//     restored backup does, or a server that writes lazily and crashes. A process that notices it continues above its
//     own ids, and logs it.
//   - The ids of one process ascend strictly. Those of all processes do not: each has a range of its own, so a row that
//     was created later may have the smaller id.
//   - Ids are lost: at most two ranges by each process that ends, and one by each answer that is lost.
//   - When Open returns, the first range is in memory.
//   - Callers that find no id wait for the fetch; they do not fail at once, as Leaf's do. They get the database's error
//     if the fetch fails. No caller waits longer than its context allows, or than Config.MaxWait if the context has no
//     deadline.
//   - A fetch that failed is sent again, even if no caller waits. Health says since when fetches fail, and why, until
//     one succeeds.
//
// # How large a range is
//
// Ranges begin with the step of the row. If one lasted less than 15 minutes, the next is twice as large, up to
// Config.MaxStep. If it lasted 30 or more, the next is half as large, down to the step of the row. So most processes
// fetch every quarter of an hour, and have ids for about as long while the database is unreachable. A step that an
// operator writes into the row counts from the next fetch on, in every process.
//
// Nothing in an id says which process made it, or when: it cannot be decoded.
package segment
