package segment

import "errors"

// Errors that a caller can act on. Other errors are the database's own, or those of a context. The error for a table
// that cannot be created wraps [workernode.ErrTable].
var (
	// ErrConfig reports a setting, or a tag, that makes no sense. [Open] returns it.
	ErrConfig = errors.New("segment: configuration")

	// ErrRow reports that the row of the tag is gone, exists twice, has a step below 1, or is new although the column
	// has numbers (see Config.Used). Ids are made again as soon as the row is corrected. [Open], Next, Fill and Health
	// return it.
	ErrRow = errors.New("segment: row not usable")

	// ErrExhausted reports that max_id has come to the end of the 63 bits of an id. [Open], Next, Fill and Health
	// return it.
	ErrExhausted = errors.New("segment: ids exhausted")
)
