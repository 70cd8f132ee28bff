package segment

import "errors"

// What a caller can act on. Errors that wrap none of these are the database's own, or
// of a context; a table that cannot be created wraps [workernode.ErrTable].
var (
	// ErrConfig reports a setting, or a tag, that makes no sense.
	ErrConfig = errors.New("segment: configuration")

	// ErrRow reports that the row of the tag is gone, is there twice, or has a step below
	// 1. Ids go on as soon as it has been put right.
	ErrRow = errors.New("segment: row not usable")

	// ErrExhausted reports that max_id has come to the end of the 63 bits of an id.
	ErrExhausted = errors.New("segment: ids exhausted")
)
