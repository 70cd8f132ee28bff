package workernode

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Errors that a caller can act on. Most others come from the database, a context or package generator.
var (
	// ErrLayoutMismatch reports a registry that was begun with another layout. [NewManager] returns it.
	ErrLayoutMismatch = errors.New("workernode: layout differs from the registry's")

	// ErrRegion reports that the registry is of another region than this process expects, or cannot be one of several
	// regions. [NewManager] and [Manager.Assign] return it.
	ErrRegion = errors.New("workernode: region not usable")

	// ErrExhausted reports that all worker ids of the layout were given out. [Manager.Assign] returns it.
	ErrExhausted = errors.New("workernode: worker ids exhausted")

	// ErrClock reports a clock that is far from the database's, or stands still. [Manager.Assign] and [DB.CheckClock]
	// return it.
	ErrClock = errors.New("workernode: clock differs from the database's")

	// ErrTable reports an unusable table: it is missing, lacks columns or has narrower ones, or a trigger changes
	// written values. [NewManager], [Manager.Assign] and package migrations return it.
	ErrTable = errors.New("workernode: table not usable")
)

// timedOut reports whether a statement had no answer in time.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// printable quotes text from a table if it could mislead a reader.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.ContainsAny(s, " ,;") {
		return q
	}
	return s
}
