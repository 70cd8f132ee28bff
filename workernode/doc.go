// Package workernode decides who may stamp ids with which worker id, and when.
//
// It keeps two tables in the user's database. WORKER_NODE has one row for each
// worker id that was ever given out: UidGenerator's seven columns with their names
// and meanings, and what is needed to lead an id back to its table and to give a
// worker id out again. WORKER_REGISTRY has one row for the whole id space: the
// layout, which no two processes may see differently, and the next worker id that
// nobody ever had.
//
// # A row is an allocator of time, not a lock
//
// FENCE is the last tick that anybody may ever have stamped with the row's worker
// id. Whoever moves it from one value to another by an acknowledged statement that
// compares,
//
//	UPDATE WORKER_NODE SET FENCE = new, ... WHERE ID = id AND FENCE = old
//
// owns the ticks after old up to new, alone and for ever: the statements that
// succeed on a row are in one order, each begins where the one before it ended, and
// nothing else writes FENCE. That no id is made twice follows from this, and from
// each process stamping a tick once. It does not rest on clocks that agree, on
// timing, on processes that do not pause, on answers that arrive, or on knowing who
// is alive.
//
// HOLDER, a random token of each start, and the clock only decide who should bother
// to try. They may be wrong at any time: two live processes on one row are safe, and
// one of them finds out at its next statement.
//
//	               insert a new row                   renew: FENCE moves on
//	(nobody's) ------------------------> [ held ] <----------------------------+
//	    ^                                 |  |  |                              |
//	    |   take over: compare FENCE      |  |  +-- no clear answer --> [ in doubt ]
//	( free ) -----------------------------+  |                          |      |
//	    ^                                    |            HOLDER is ours: compare
//	    |                                    |            with what was read,
//	    +---- Close: HOLDER = '' ------------+            never use it
//	    |                                                               |
//	    +---- FENCE + grace has passed: somebody else takes over        |
//	          ( the process finds out:  [ lost ] <----------------------+
//	            uses up what it had, and takes another row )
//
// # Rules
//
// [Leased] is the policy that gives worker ids out again; lease.go decides, keeper.go
// and leased.go act, statements.go has the SQL.
//
//  1. Acknowledged or nothing. A tick is stamped only after a statement that granted
//     it has returned without an error and with the number of rows that it should
//     have changed. If fewer rows were changed, or the outcome is not known, nothing
//     is granted.
//  2. In doubt, the row is read, and what was read is compared with in the next
//     statement. It is never used: a statement of this process may still be on its
//     way. If HOLDER is somebody else, the row is lost: what was granted before may
//     be used up, for it is this process's for ever.
//  3. Nothing lowers FENCE. Giving a row back empties HOLDER, no more.
//  4. A row is taken over within its TABLE_NAME and LAYOUT only, which never change,
//     so a worker id means one table for ever. Rows that are not REUSABLE, those of
//     [Disposable] and of UidGenerator, are never taken over. Rows are never deleted.
//  5. Each statement is a transaction of its own, on the pool of the handle that the
//     plugin was registered with, never inside a transaction of the application,
//     whose rollback would take a fence back while memory keeps the ticks. Each is
//     harmless if it is executed twice or late: it compares.
//  6. Nothing rests on a read. A stale one, from a replica or a cluster's other node,
//     costs another statement.
//
// # A database that forgets
//
// The above needs a database that keeps what it has acknowledged. A promoted replica,
// a restored backup or a server without fsync may have an old FENCE, or lack the row,
// while a process still stamps what it was granted. In the guarded mode, the default,
// this is harmless too if enough time passes: a fence is at most Lead ahead of the
// clock when it is written (20 s), and of every grant, renewals included, only ticks
// are stamped that are at least Margin (10 s) ahead of the clock as it is read after
// the acknowledgement. Let G be the time between the last commit that was lost and
// the first statement that the database takes afterwards, and S what clocks differ by.
// Then no tick is stamped twice if
//
//	Lead <= Margin + G - S - 1
//
// in ticks of a second: with the defaults, if G - S is at least 11 s. (Proof: what was
// stamped from a lost grant is at most clock + Lead when it was acknowledged; what is
// stamped from a later one is at least clock + G - S + Margin.) A process that is busy
// does not notice the margin: it renews every 5 s, so that windows join.
//
// A holder often finds out: if a statement is acknowledged that compared with a FENCE
// below what was granted to it, the database has lost commits. It says so in the log,
// counts it ([LeaseStats]), and moves the fence above both. If another process has taken
// the row before, all it sees is that the row is lost. Two servers that accept writes at the same time are no
// register, and not covered.
//
// The durable mode ([LeasedConfig].Durable) does without the margin, and sets fences
// by need, up to an hour ahead. It is for databases that do not forget.
//
// # A start without the database
//
// A grant is as good after its process has ended as before: ticks up to FENCE that no id
// bears are nobody else's. [LeasedConfig].File hands them from a process that is closed to
// the next one on the same machine. It is off unless it is asked for.
//
// # Lanes
//
// In the guarded mode one worker id makes as many ids as a tick has sequences, after a
// burst. A generator that needs more gets further worker ids of the same table, lanes,
// doubled each time, and gives half of them back when it has been up with the clock
// for a while. All rows of a process have the same fence, if nothing has happened, so
// one statement renews them all.
//
// # Spares
//
// The first row of a table can come inside a transaction that has the only connection.
// For this a few worker ids are held whose TABLE_NAME is empty. One of them is bound to
// the table in memory, at once, and the keeper writes the table into the row when it
// gets a connection. If the process ends before, its ids lead nowhere: when another
// process takes the row over, as a spare of its own, START_SECOND moves above all that
// was stamped. So the row still means one table, for all ids after START_SECOND. The
// statement that takes a spare over also compares TABLE_NAME, which may have been
// written meanwhile; and a process that has used a spare and lost it never takes it
// over again, because its own writing of the table may still be on its way.
//
// # Worker ids
//
// Auto-increment counters leave gaps of thousands on some engines (TiDB hands 30,000
// to each server), go back after a crash or a failover on others, and differ in each
// dialect. One UPDATE adds to NEXT_ID and tells what it was (LAST_INSERT_ID, RETURNING), or,
// where that cannot be had, compares it: exact on clusters too, whose locks and reads are
// not. Worker id 0 is never given out, as in UidGenerator.
//
// START_SECOND is the last tick before the first that anybody may stamp with a worker
// id, and HELD_SECOND the last that is not of the holder named in the row. All count as
// the time field of an id does, in ticks of the layout since its epoch.
//
// # Beside UidGenerator
//
// UidGenerator's Java service may go on inserting into the same table: added columns
// have defaults, and its rows, which have no TABLE_NAME and are not REUSABLE, are never
// given to anybody here. Its ids come from AUTO_INCREMENT, so on a table whose ID is
// AUTO_INCREMENT new worker ids are drawn from it here too, by an INSERT that is rolled
// back, and neither ever meets the other's. Where the counter is behind NEXT_ID, as after
// a restart of MySQL 5.7, or beyond the layout, NEXT_ID counts.
package workernode
