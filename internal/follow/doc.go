// Package follow reads the rows of a table in the order of their ids, each once, and misses none.
//
// Ids contain a time, so rows sort by when they were made. But a transaction may commit long after it made its ids. So
// a follower that asks for ids above the last one that it has seen misses rows that commit later with lower ids. This
// package closes the past instead: a process, the closer, makes sure that no more rows come below a mark.
//
// # The protocol
//
//  1. Raise. The closer sets the table's mark to the smallest id of "now minus slack". A trigger of the table refuses
//     every new row whose id is below the mark.
//  2. Wait. For each row the trigger first takes a shared lock, the gate, until the end of the transaction, and only
//     then reads the mark. The closer asks for the same lock exclusively. When it has had the lock, all transactions
//     that took the gate before have ended.
//  3. Publish. The closer stores the mark in UID_FOLLOW. From then on all rows with ids below it are visible, or will
//     never be. These three steps are a round.
//
// # Why no row is missed
//
// Let m be a published mark, and r a row with an id below m. The trigger of r took a gate and then read the mark,
// on MySQL together with the gate. Before it refuses a row, a trigger may do both again; then consider the last
// time. If the trigger read m or more, it refused r. Otherwise it read the mark before the closer raised the mark
// to m, so it took its gate before that, too. The closer passed this gate after it had raised the mark, so the
// transaction of r had ended. Hence r was visible, or rolled back, before m was published. A follower reads the
// published mark first and its rows afterwards, with a new snapshot, so it sees r.
//
// This holds for all clocks, pauses and retries. Slack only decides which rows are refused: those whose ids are older
// than slack when the INSERT arrives. The program then creates the row again with a new id.
//
// # The parts
//
// There are two gates, so that nobody waits for the closer: while the closer waits for one gate, new transactions
// take the other. Which gate they take does not matter for correctness, because the closer passes both before it
// publishes. A transaction may choose a gate just before the closer chooses the same one, and would wait behind the
// closer. So at first the closer asks for the gate again and again, without waiting.
//
// The trigger chooses its gate once for a row, by a statement of its own. In the condition that finds the gate's
// row, MySQL and MariaDB would evaluate the choice twice. If the closer changed the choice in between, they would
// find no gate, and refuse the row for no reason. For its message the trigger reads the mark again, and it refuses
// the row only if the id is below that mark.
//
// The trigger must see the current mark, not the mark in its snapshot. On MySQL it reads the row of the gate with a
// shared lock. On MariaDB and PostgreSQL the mark is a sequence, which has no versions. On MariaDB the gates are rows
// that are locked but never written, and on PostgreSQL they are advisory locks. MariaDB reads the sequence after the
// gate because the subquery for the sequence uses a column of the gate's row. SQLite has one writer at a time, so the
// UPDATE that raises the mark also waits for that writer.
//
// If the mark is missing or NULL, the trigger refuses all rows. It runs after the INSERT because a trigger before
// the INSERT also fires for rows that exist, such as those of ON CONFLICT DO NOTHING.
//
// On PostgreSQL the trigger runs once for each statement, with the inserted rows as a table. Such a trigger does not
// fire for rows that are inserted into a partition directly, so on a partitioned table and on a partition the trigger
// runs for each row.
//
// InnoDB forgets the gates of prepared XA transactions: on MariaDB at XA PREPARE, on MySQL when the server crashes. The
// rows of these transactions stay locked, so a follower that reads with shared locks, at READ COMMITTED, waits.
//
// CREATE TRIGGER waits for the transactions that have inserted rows without a gate, so every later row is guarded. All
// writers queue up behind it, so it gives up after a second at most, and is sent again.
//
// Some statements only shorten waits: they ask for a gate without waiting, take the lock that diverts new transactions
// to the other gate, or limit the connection. A round goes on without them, because a database may refuse any of them.
// On MySQL and MariaDB a closer that hangs would keep its lock, so it limits the idle time of its connection.
//
// Several processes may close at once, because raising never lowers the mark and each process waits by itself. One
// closer is enough, so the processes take turns by a column of UID_FOLLOW.
//
// A round is bound to one connection. If the connection breaks, another round begins, because after a failover the
// database may have lost the mark. Behind a pooler a round may still use two servers, so publishing checks that the
// trigger's mark is high enough. Before each read followers ask for the published mark, which may be lost, too.
package follow
