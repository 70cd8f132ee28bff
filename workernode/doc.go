// Package workernode decides which process may stamp ids with which worker id, and when. It keeps four tables in the
// user's database:
//
//	WORKER_SLOT      one row for each slot, the reusable identity of a process
//	WORKER_NODE      one row for each worker id: the slot that owns it, and its table
//	WORKER_SESSION   which process held which slot from when on
//	WORKER_REGISTRY  one row: the layout, the lead, and the next unused worker id and slot
//
// A process holds one slot. The slot permanently owns one worker id for each table that any of its holders has written
// to, and further ones where one is not enough (lanes). The holder stamps ids with all of them. So a renewal is one
// UPDATE of one row, however many tables there are. A restarted process has the worker ids of all its tables at once.
//
// # A slot is an allocator of time, not a lock
//
// FENCE is the last tick that any process may ever have stamped with a worker id of the slot. A process that moves it
// by an acknowledged statement that compares,
//
//	UPDATE WORKER_SLOT SET FENCE = new, VERSION = v, HOLDER = me, ...
//	 WHERE ID = id AND HOLDER = .. AND VERSION = .. AND FENCE = old
//
// owns the ticks after old up to new, alone and permanently. The statements that succeed on a row are in one order.
// Each begins where the one before it ended, and nothing else writes FENCE. That no id is made twice follows from this,
// and from each process stamping a tick of a worker id once. It does not rest on clocks that agree, on timing, on
// processes that do not pause, or on answers that arrive. It does not need to know which processes are alive.
//
// HOLDER, a random token of each start, and the clock only decide which process should try. They may be wrong at any
// time: of two live processes on one slot, one learns it at its next statement.
//
//	              insert                     renew: FENCE moves on
//	( no row ) ----------> [ held ] <--------------------------------------+
//	                        |  |  |                                        |
//	( free ) ---------------+  |  +-- no answer --> [ outcome unknown ] ---+
//	   ^        reclaim        |                           |   HOLDER is ours: compare with
//	   |                       |                           |   what was read, never use it
//	   +---- Close ------------+                           |
//	   |                                                   | HOLDER is another process
//	   +---- grace has passed: another process reclaims    v
//	         the slot                                   [ lost ]  uses up what was granted,
//	                                                              and acquires another slot
//
// # Rules
//
// lease.go decides, lanes.go decides how many worker ids a generator needs, the [Manager] acts: one goroutine for each
// process sends every statement about the slot, one at a time.
//
//  1. Acknowledged or nothing. A grant counts when its statement or COMMIT returned without an error and changed the
//     rows that it should. A transaction that begins a session or adds worker ids reads back, before COMMIT, what it
//     has written to the slot's row, because a trigger or a narrow column may keep another FENCE. What a renewal has
//     written is compared by the next one.
//  2. Outcome unknown: read. If HOLDER is another process, or there is no row, the slot is lost. Otherwise the next
//     statement compares with what was read, which itself is never used. If VERSION is below what was acknowledged,
//     either the database has lost commits or the read was stale. Only a release that compares with what was read can
//     tell. If VERSION is not below and FENCE is, the database did not keep FENCE: the process reports it, does not
//     release the slot, and is granted nothing before a session whose FENCE was read back.
//  3. A session is a run of grants without a gap. A renewal continues it only if FENCE is what was granted last and the
//     clock has not passed that. Both must hold before the statement is sent and after it is acknowledged. Otherwise a
//     transaction begins a new session.
//  4. Nothing lowers FENCE. Rows of WORKER_NODE are never deleted, and the table of a worker id never changes once it
//     is set. A process that finds a row of its own deleted, at a new session or within ten minutes, gets another. Rows of WORKER_SESSION are deleted by [DB.PruneSessions] only, when somebody asks for it.
//  5. Each statement is its own transaction, or in one with the slot's row first. It runs on the pool of the handle
//     that the plugin was registered with, never inside a transaction of the application. Executed twice or late, it
//     changes nothing: it compares.
//  6. Resolving never guesses. An id belongs to the session with the largest START_TICK below its tick, unless its tick
//     is above a later session's BEFORE_TICK, or above FENCE. The oldest row of a slot may stand for sessions that
//     were pruned. Then it names no process. It has their ids, and those of the time between them.
//
// # Databases that lose commits
//
// A promoted replica, a restored backup or a server without fsync may have an old FENCE, or lack a row, while a process
// still stamps what it was granted. A fence is at most Lead ahead of the clock when it is written. Of every grant only
// ticks at or after the clock are stamped. Let G be the time between the last lost commit and the first statement that
// the database accepts afterwards, and S what clocks differ by. No tick of a worker id is stamped twice, and none
// resolves to a wrong table or process, if
//
//	Lead <= G - S - 1 tick
//
// So Lead + 2 s are enough for G if clocks differ by less than a second, in layouts with ticks up to a second.
//
// Proof: ticks stamped from a lost grant are at most clock + Lead at its acknowledgement. Ticks stamped from a later
// one are at least clock + G - S. A transaction that adds worker ids writes the slot's row, too. If it is lost, so are
// all later renewals, and the next one is refused.
//
// The assumptions are: transactions are lost whole; of those that touch a common row, a suffix is lost; no proxy splits
// or repeats parts of a transaction. Two servers that accept writes at the same time are not one database, and not
// covered. After a restore of a backup an operator sets FLOOR_TICK: no tick up to FLOOR_TICK is stamped.
//
// # Idle processes
//
// Ten minutes after its last id a process stops renewing. Keep-alives every 30 s change VERSION and SEEN_TICK only, so
// no other process reclaims the slot. The first follows when FENCE has passed. So if FENCE has passed and SEEN_TICK is
// not above it, the process has ended, is paused, or cannot reach the database. The next id begins a new session.
//
// # Lanes
//
// One worker id makes as many ids in a tick as the layout has sequences, after a burst of Lead. A generator that needs
// more gets further worker ids of its table, up to [MaxLanes]. They stay with the slot, so a later holder has them
// without a statement. No lanes are added once half of the layout's worker ids were given out.
//
// # Spares
//
// The first row of a table can come inside a transaction that has the only connection. For this the slot has a few
// worker ids without a table. The table gets one of them in memory, at once. The lease manager writes the table into
// the row of the worker id when it gets a connection. If the slot is lost before, the ids cannot be located: START_TICK
// of the next table of the worker id is above all that was stamped.
//
// A new session of the slot may have begun before, as after an outage. Then START_TICK is that of the new session,
// because after lost commits another process may have used the worker id in the old one. The ids of the old session
// cannot be located either, and the log reports it.
//
// # Worker ids
//
// One UPDATE of WORKER_REGISTRY advances NEXT_ID, outside of a transaction. It is not AUTO_INCREMENT, which leaves gaps
// of thousands on some engines and goes back after a crash on others. Worker id 0 is never given out, as in
// UidGenerator.
//
// # Next to UidGenerator
//
// UidGenerator's Java service may insert into the same table. Added columns have defaults, and its rows, which have no
// SLOT, are never used. Its ids come from AUTO_INCREMENT. So on a table whose ID is AUTO_INCREMENT this package draws
// new worker ids from it, too, by an INSERT that is rolled back. Neither program ever gets a number of the other. Where
// the counter is behind NEXT_ID, or beyond the layout, NEXT_ID counts.
package workernode
