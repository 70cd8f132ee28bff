// Package ringbuffer holds ids that are made but not yet handed out. It uses sync/atomic and nothing else.
//
// # Ids that can be computed
//
// A generator counts positions: consecutive integers, one for each id that it could make, in ascending order of the
// ids. [Computed] knows two of them. The cursor is the next position to hand out (UidGenerator's cursor). The tail is
// the first position that must not be handed out yet (UidGenerator's tail). To move the tail is what UidGenerator calls
// padding.
//
// Computed stores nothing else, so its size does not depend on how many ids it holds. Nothing is read after a position
// was claimed, so two takers cannot get one slot.
//
// # Ids that cannot be computed
//
// [Stored] is a bounded queue of runs of consecutive ids, for one producer and any number of takers. A slot holds a
// whole run, so a thousand ids cost what one does.
package ringbuffer
