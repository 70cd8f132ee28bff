// Package workernode decides which process may stamp ids with which worker id, and when. It keeps four tables in the
// user's database:
//
//	WORKER_SLOT      one row for each slot, the reusable identity of a process
//	WORKER_NODE      one row for each worker id: the slot that owns it, and its table
//	WORKER_SESSION   which process held which slot, and from which tick on
//	WORKER_REGISTRY  one row: the layout, the lead, and the next unused worker id and slot
//
// A [DB] reads them, and a [Manager] holds a slot for a process. Names of this package may change at any time, except
// those that docs/compatibility.md lists.
//
// Each process holds one slot. The slot permanently owns a worker id for each table that any holder has written to, and
// further worker ids where one is not enough (lanes). The holder stamps ids with all of them. So a renewal is one
// UPDATE of one row, however many tables exist, and a restarted process has all its worker ids at once.
//
// # A slot is an allocator of time, not a lock
//
// FENCE is the last tick that any process may ever have stamped with a worker id of the slot. A process moves it by
// compare-and-set:
//
//	UPDATE WORKER_SLOT SET FENCE = new, VERSION = v, HOLDER = me, ...
//	 WHERE ID = id AND HOLDER = .. AND VERSION = .. AND FENCE = old
//
// Once this statement is acknowledged the process owns the ticks above the old FENCE up to the new one, alone and
// permanently. The successful statements on a row are in one order, each begins where its predecessor ended, and
// nothing else writes FENCE. So ids are unique if each process uses each id only once. Timing does not matter:
// clocks may differ, processes may pause or end, and answers may be late or lost.
//
// HOLDER (a random token of each start) and the clock only decide which process should try. They may be wrong at any
// time: if two live processes use one slot, one of them notices at its next statement.
//
//	              insert                     renew: FENCE moves on
//	( no row ) ----------> [ held ] <--------------------------------------+
//	                        |  |  |                                        |
//	( free ) ---------------+  |  +-- no answer --> [ outcome unknown ] ---+
//	   ^        reclaim        |                           |   HOLDER is ours: compare with
//	   |                       |                           |   the row as read, never use it
//	   +---- Close ------------+                           |
//	   |                                                   | HOLDER is another process
//	   +---- grace has passed: another process reclaims    v
//	         the slot                                   [ lost ]  uses up its grants, and
//	                                                              acquires another slot
//
// # Rules
//
// Package internal/lease decides about the slot, and how many worker ids a generator needs. The [Manager] acts: one
// goroutine in each process sends every statement about the slot, one at a time.
//
//  1. Acknowledged or nothing. A grant counts once its statement or COMMIT has returned without an error and has
//     changed the expected rows. A transaction that begins a session, adds worker ids or releases the slot reads the
//     slot's row back before COMMIT, because a trigger or a narrow column may store another FENCE. Renewals and
//     keep-alives are not read back: the next statement compares their values.
//  2. Outcome unknown: read. The slot is lost if HOLDER is not this process or the row is gone. Otherwise the next
//     statement compares with the row as read, but the row grants nothing. If VERSION is below the acknowledged
//     one, the database has lost commits or the read was stale. Only a release that compares with this row can
//     tell. If just FENCE is below the last grant, the database did not keep FENCE. Then the process reports this,
//     keeps the slot, and gets no grant until it begins a session, whose transaction reads FENCE back.
//  3. A session is a run of grants without a gap. A renewal continues it only if FENCE equals the last grant and
//     the clock has not passed the tick after it. Both must hold before the statement is sent and after it is
//     acknowledged. Otherwise a transaction begins a new session.
//  4. Nothing lowers FENCE. Rows of WORKER_NODE are never deleted. Only an operator changes the table of a worker
//     id, to the new name of a renamed table (uid tables rename). A transaction that adds worker ids reads their
//     rows back before COMMIT. If somebody deletes the row of a worker id, or changes its slot or table, its
//     process notices at a new session or within ten minutes, and gets another worker id. An unused worker id
//     serves the table that its row names. Only an operator deletes rows of WORKER_SESSION (uid sessions prune).
//  5. Each statement about the slot is a transaction of its own, or part of a transaction that writes the slot's
//     row first. It runs on the pool of the plugin's handle, never inside a transaction of the application. If it
//     is executed twice or late it changes nothing, because it compares.
//  6. Resolving never guesses. An id belongs to the session with the largest START_TICK below its tick, unless its
//     tick is above a later session's BEFORE_TICK, or above FENCE. The oldest session row of a slot may stand for
//     pruned sessions. Then it names no process, and ids of these sessions and of the time between belong to it.
//
// # Databases that lose commits
//
// A promoted replica, a restored backup or a server without fsync may have an old FENCE, or lack a row, while a process
// still stamps its grants. A fence is at most Lead ahead of the clock when it is written, and only ticks at or after
// the clock are stamped. Let G be the time between the last lost commit and the first statement that the database
// accepts afterwards, and S the difference between clocks. Then no tick of a worker id is stamped twice, and no id
// resolves to a wrong table or process, if
//
//	Lead <= G - S - 1 tick
//
// So a G of Lead + 2 s is enough if clocks differ by less than a second, in layouts with ticks up to a second.
//
// Proof: ticks of a lost grant are at most clock + Lead at its acknowledgement. Ticks of a later grant are at least
// clock + G - S. A transaction that adds worker ids also writes the slot's row. If it is lost, all later renewals are
// lost, too, and the next renewal is refused.
//
// We assume that transactions are lost whole, and that only the latest ones on each row are lost. We also assume
// that no proxy splits or repeats parts of a transaction. Two servers that accept writes at once are not one
// database, so each needs a region of its own (see Regions). After restoring a backup, operators should set
// FLOOR_TICK, because no tick up to it is stamped.
//
// # Another id space
//
// A process stays in the id space whose ID_SPACE it read at its start. Renewals do not read the registry, because they
// compare the slot's row instead:
//
//   - A registry begins only while no table has a row of a slot of its region. So while the row of a process's slot
//     exists, no other registry begins, and no other process gets its worker ids.
//   - Without that row a renewal grants nothing. The process gets another slot, or worker ids, only if ID_SPACE is
//     unchanged. The UPDATE of NEXT_SLOT or NEXT_ID compares it. So does a transaction that begins a session or adds
//     worker ids, before COMMIT.
//   - If somebody replaced only the registry's row, each process notices within ten minutes.
//
// If a process finds another id space, it forgets its slot and reports that it needs a restart. Emptying all tables
// at once is like a loss of commits, because processes still use up their grants. So Lead <= G - S - 1 tick must
// hold there, too, and G ends when the new registry begins.
//
// # Regions
//
// Several registries, each in its own database, may share one id space without communicating. Of n regions, region r
// gives out the worker ids and slots that leave the remainder r when divided by n. So rows of all regions can be
// replicated in both directions, or merged later. An id resolves in each database that has the rows.
//
// The registry stores n in STRIDE and r in REMAINDER. Each UPDATE that takes numbers compares them, so a registry
// can be divided while processes run. It keeps the numbers that it gave out before, whatever their remainder, and
// the other regions begin above them. REGION of a slot names its region. A process holds only slots of its own
// region, because FENCE of a replicated row may be old. The registry's row is not replicated. If a slot shows that
// another region gives out the same numbers, the registry is outdated or its n differs: processes take no number.
//
// The protocol is the same within each region. Its proof needs only that a slot's row is changed in one database, and
// that no other registry gives out the numbers of this one.
//
// # Idle processes
//
// Ten minutes after its last id a process stops renewing. Instead it sends keep-alives every 30 s, which change
// VERSION and SEEN_TICK but not FENCE, so that no other process reclaims the slot. One is sent as soon as FENCE
// has passed. So if FENCE has passed and SEEN_TICK is not above it, the process has ended, is paused, or
// cannot reach the database. The next id begins a new session.
//
// # Lanes
//
// A worker id makes only as many ids in a tick as a layout has sequences, so in bursts ids are ahead of the clock.
// A generator that is over [generator.Layout.LaneAhead] ahead gets all worker ids that it may have, up to
// [generator.Layout.MaxLanes]. They stay with the slot, so later holders have them without a statement. Once half
// of the worker ids from FIRST_ID on were given out, lanes get no new ones. A disposable slot, and a table whose
// rows use up several ids, get lanes only when half of the lease is used up, and their number doubles each time.
//
// # Worker ids
//
// One UPDATE of WORKER_REGISTRY advances NEXT_ID, outside of a transaction. We do not use AUTO_INCREMENT, because it
// leaves gaps of thousands on some engines and goes back after a crash on others. As in UidGenerator, worker id 0 is
// never given out.
//
// # Worker ids given by hand
//
// The registry gives out no worker id below FIRST_ID, so processes that are given such a number by hand need not
// write anything, and a registry may begin later. A process with another number raises FIRST_ID and NEXT_ID above
// it, in one UPDATE that compares both, and STRIDE and REMAINDER. It may do so only while FIRST_ID equals NEXT_ID
// (no worker id was given out), and never in a region. The UPDATEs that take worker ids change the same row, so one
// UPDATE comes first. FIRST_ID is 1 if WORKER_NODE has numbers of UidGenerator, or may get some.
//
// # Next to UidGenerator
//
// UidGenerator's Java service may insert into the same table, because added columns have defaults. Its rows have a
// NULL SLOT and are never used. If ID is AUTO_INCREMENT, both programs draw worker ids from its counter, this
// package by an INSERT that is rolled back. So neither ever gets a number of the other. If the counter is behind
// NEXT_ID or beyond the layout, this package uses NEXT_ID instead.
package workernode
