package segment

import "errors"

// Errors that a caller can act on. If the table cannot be created, or does not keep max_id, the error wraps
// uidplugin.ErrTable. Other errors wrap one of package generator, or are the database's or a context's.
var (
	// ErrConfig reports an invalid setting or tag, or connections without autocommit. [Open] returns it.
	ErrConfig = errors.New("segment: configuration")

	// ErrRow reports that the row of the tag is missing, exists twice, has a step below 1, or has a max_id that is not
	// above the numbers of the column (see Config.Used). Operators should correct the row; then the generator
	// continues. [Open], Next, Fill and Health return it.
	ErrRow = errors.New("segment: row not usable")

	// ErrExhausted reports that max_id has reached the end of the 63 bits of an id. [Open], Next, Fill and Health
	// return it.
	ErrExhausted = errors.New("segment: ids exhausted")
)
