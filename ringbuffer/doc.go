// Package ringbuffer holds ids that are made but not yet handed out.
//
// A generator counts positions: consecutive integers, one for each id that it could make, in ascending order of the
// ids. A ring knows two of them. The cursor is the next position to hand out (UidGenerator's cursor). The tail is the
// first position that must not be handed out yet (UidGenerator's tail). To move the tail is what UidGenerator calls
// padding.
//
// [Computed] is a ring for ids that follow from their position by a few shifts. It stores nothing else, so its size
// does not depend on how many ids it holds. Nothing is read after a position was claimed, so two takers cannot get one
// slot.
//
// The package uses sync/atomic and nothing else.
package ringbuffer
