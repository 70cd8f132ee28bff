// Package ringbuffer holds ids that are made but not yet handed out. It uses sync/atomic and nothing else.
//
// Its names may change in any version; docs/compatibility.md lists what stays.
//
// # Ids that can be computed
//
// A generator counts positions: consecutive integers, one for each id that it could make, in ascending order of the
// ids. A [Computed] stores two of them. The cursor is the next to hand out (UidGenerator's cursor). The tail is
// the first position that must not be handed out yet (UidGenerator's tail, which its "padding" moves).
//
// Two takers cannot get one position, because each takes its position by one atomic addition to the cursor.
//
// # Ids that cannot be computed
//
// [Stored] is a bounded queue of runs of consecutive ids, for one producer and any number of takers. Each slot
// of the queue holds a whole run, so putting in a run of a thousand ids costs as much as putting in one id.
package ringbuffer
