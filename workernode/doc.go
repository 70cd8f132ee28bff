// Package workernode decides who may stamp ids with which worker id.
//
// It keeps two tables in the user's database. WORKER_NODE has one row for each
// worker id that was ever given out: UidGenerator's seven columns with their
// names and meanings, and what is needed to lead an id back to its table and,
// one day, to give a worker id out again. WORKER_REGISTRY has one row for the
// whole id space: the layout, which no two processes may see differently, and
// the next worker id that nobody ever had.
//
//	          WORKER_REGISTRY                          WORKER_NODE
//	+-------------------------------+     +-------------------------------------+
//	| LAYOUT   1-28-22-13/1s@176... |     | ID  TABLE_NAME  HOST_NAME  ... FENCE |
//	| NEXT_ID  58                   |     | 56  orders      web-1               |
//	+-------------------------------+     | 57  items       web-1               |
//	    |                                 +-------------------------------------+
//	    | 1. compare the layout, read NEXT_ID = n           ^
//	    | 2. UPDATE ... SET NEXT_ID = n+k WHERE NEXT_ID = n  |
//	    +--- 3. INSERT rows n ... n+k-1, one per table ------+
//
// # Why not AUTO_INCREMENT
//
// Auto-increment counters leave gaps of thousands on some engines (TiDB hands
// 30,000 to each server), go back after a crash or a failover on others, and
// differ in each dialect. NEXT_ID is moved by a conditional UPDATE, judged by the
// number of rows that it changed: the same on every engine, and exact on
// clusters where locks and reads are not. Worker id 0 is never given out, as in
// UidGenerator.
//
// # Rules
//
//   - Each statement is a transaction of its own, on the pool of the handle that
//     the plugin was registered with, never inside a transaction of the
//     application, whose rollback would take the worker id back while memory
//     keeps it.
//   - Acknowledged or nothing: a worker id is used only after its INSERT has
//     returned without an error. If the outcome is not known, the worker id is
//     forgotten; the row, if there is one, stays unused.
//   - A worker id belongs to one table for ever. Rows are never deleted.
//   - FENCE is the last tick that anybody may stamp with this worker id, and
//     START_SECOND the last one before its first. Both count as the time field of
//     an id does, in ticks of the layout since its epoch. A [Disposable] worker id
//     is given out once, with FENCE at the end of the layout.
//
// # Beside UidGenerator
//
// UidGenerator's Java service may go on inserting into the same table: added
// columns have defaults, and its rows, which have no TABLE_NAME, are never given
// to anybody here. Its ids come from AUTO_INCREMENT, which moves above each id
// inserted here; when it is faster, the INSERT here meets a duplicate key and the
// next id is taken.
package workernode
