package generator

import "errors"

// Errors that a caller can act on. Every error wraps one of them, or comes from a context or BufferedConfig.Empty.
var (
	// ErrLayout reports a layout that cannot hold ids, has ended or has not begun. It also reports a value that does
	// not fit the layout. The constructors, Renew and the methods of [Layout] return it.
	ErrLayout = errors.New("generator: layout")

	// ErrConfig reports a setting of a generator that makes no sense. The constructors and Renew return it.
	ErrConfig = errors.New("generator: configuration")

	// ErrClockBackwards reports a clock that has gone back by more than the tolerance. Next and Fill of [Snowflake]
	// return it, and Health of all renewable generators.
	ErrClockBackwards = errors.New("generator: clock moved backwards")

	// ErrBorrowLimit reports that a generator that does not wait is as far ahead of the clock as it may be. Next,
	// Fill and Health of [Cached] return it.
	ErrBorrowLimit = errors.New("generator: borrowing limit reached")

	// ErrLeaseExpired reports that the lease is used up. Either the lease is not renewed, or the generator must not
	// wait for a renewal. Next and Fill of all renewable generators return it.
	ErrLeaseExpired = errors.New("generator: lease expired")

	// ErrTimeExhausted reports that the time bits of the layout are used up. Next and Fill return it.
	ErrTimeExhausted = errors.New("generator: time bits exhausted")

	// ErrEmpty reports a buffer that has no id. The function Empty of [BufferedConfig] may return it instead of
	// waiting. Then Next and Fill of [Buffered] return it.
	ErrEmpty = errors.New("generator: no ids in the buffer")

	// ErrSource reports that the source failed. Next and Fill of [Buffered] return it.
	ErrSource = errors.New("generator: source of ids")

	// ErrClosed reports the use of a generator after its Close. Next, Fill and Renew return it.
	ErrClosed = errors.New("generator: closed")
)
