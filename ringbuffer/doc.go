// Package ringbuffer holds ids that are made but not yet handed out. It uses sync/atomic and nothing else.
//
// Its names may change in any version; docs/compatibility.md lists what stays.
//
// # Ids that can be computed
//
// A generator counts positions: consecutive integers, one for each id that it could make, in ascending order of the
// ids. [Computed] knows two of them. The cursor is the next position to hand out (UidGenerator's cursor). The tail is
// the first position that must not be handed out yet (UidGenerator's tail, which is moved by its "padding").
//
// The size of a Computed does not depend on how many ids it holds, because it stores nothing else. Two takers cannot
// get one position, because nothing is read after a position was claimed.
//
// # Ids that cannot be computed
//
// [Stored] is a bounded queue of runs of consecutive ids, for one producer and any number of takers. A slot holds a
// whole run because then a thousand ids cost as much as one.
package ringbuffer
