// Package follow reads the rows of a table in the order of their ids, each once, and misses none.
//
// Ids contain a time, so they sort by when they were made. But a transaction may commit long after it has made its
// ids. So a follower that asks only for ids above the last one it has seen misses rows that commit later with lower
// ids. This package closes the past instead: a process, the closer, makes sure that no more rows come below a mark.
//
// # The protocol
//
//  1. Raise. The closer raises the table's mark to the smallest id of "now minus slack". A trigger of the table
//     refuses every new row whose id is below the mark.
//  2. Wait. Before the trigger reads the mark, it takes a shared lock, the gate, until the end of the transaction.
//     The closer asks for the same lock exclusively. When it gets the lock, it has passed the gate: all
//     transactions that took the gate before have ended.
//  3. Publish. The closer stores the mark in UID_FOLLOW. From then on all rows with ids below it are visible, or
//     will never be. These three steps are a round.
//
// # Why no row is missed
//
// Let m be a published mark, and r a row with an id below m. The trigger of r took a gate and then read the mark.
// (On MySQL one statement does both.) Before a trigger refuses a row, it may do both again; then only the last time
// counts. If the trigger read m or more, it refused r. Otherwise it read the mark before the closer raised the mark
// to m. So it also took its gate before that. The closer passed this gate after it had raised the mark, so the
// transaction of r had ended. Hence r was visible, or rolled back, before m was published. A follower reads the
// published mark first and its rows afterwards, with a new snapshot, so it sees r.
//
// This holds for all clocks, pauses and retries. Slack only decides which rows may be refused: those whose ids are
// older than slack when the INSERT arrives.
//
// # The parts
//
// There are two gates, so that nobody waits for the closer: while the closer waits for one gate, new transactions
// take the other. A transaction may take either gate, because the closer passes both before it publishes.
//
// The trigger must see the current mark, not the mark of its snapshot. On MySQL the row of each gate has the mark,
// and the trigger reads this row with a shared lock. On MariaDB and PostgreSQL the mark is a sequence, which has no
// versions. The gates are rows that are never written on MariaDB, and advisory locks on PostgreSQL. SQLite needs no
// gate: it has one writer at a time, so the UPDATE that raises the mark waits for that writer.
//
// If the mark is missing or NULL, the trigger refuses all rows. The trigger runs after the INSERT, because a
// trigger before the INSERT also fires for rows that exist, such as those of ON CONFLICT DO NOTHING.
//
// InnoDB releases the gates of prepared XA transactions early: on MariaDB at XA PREPARE, on MySQL when the server
// crashes. The rows of these transactions stay locked. So a follower that reads with shared locks, at READ
// COMMITTED, waits for them.
//
// CREATE TRIGGER waits for the transactions that have inserted rows without a gate, so every later row is guarded.
//
// Several processes may close at once, because raising never lowers the mark and each process waits by itself. One
// closer is enough, so the processes take turns by a column of UID_FOLLOW.
//
// Except on SQLite, a round is bound to one connection. If that breaks, another round begins, because after a
// failover the database may have lost the mark. It may also have lost the published mark, so followers ask for the
// published mark before each read.
package follow
