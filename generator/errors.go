package generator

import "errors"

// Errors that a caller can act on. Every error of this package wraps one of them, or is the error of a context.
var (
	// ErrLayout reports a layout that cannot hold ids, has ended or has not begun. It also reports a value that does
	// not fit the layout.
	ErrLayout = errors.New("generator: layout")

	// ErrConfig reports a setting of a generator that makes no sense.
	ErrConfig = errors.New("generator: configuration")

	// ErrClockBackwards reports a clock that shows less than an id already carries,
	// by more than the tolerance. Only [Snowflake] returns it.
	ErrClockBackwards = errors.New("generator: clock moved backwards")

	// ErrBorrowLimit reports that a [Cached] generator made to refuse rather than
	// wait is as far ahead of the clock as it may be.
	ErrBorrowLimit = errors.New("generator: borrowing limit reached")

	// ErrLeaseExpired reports that the lease is used up, and is not renewed or the generator must not wait for that.
	ErrLeaseExpired = errors.New("generator: lease expired")

	// ErrTimeExhausted reports that the time bits of the layout are used up.
	ErrTimeExhausted = errors.New("generator: time bits exhausted")

	// ErrEmpty reports a [Buffered] generator that has no id and must not wait for one.
	ErrEmpty = errors.New("generator: no ids in the buffer")

	// ErrSource reports that the source of a [Buffered] generator failed.
	ErrSource = errors.New("generator: source of ids")

	// ErrClosed reports the use of a generator after its Close.
	ErrClosed = errors.New("generator: closed")
)
