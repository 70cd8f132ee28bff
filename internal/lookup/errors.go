package lookup

import (
	"errors"
	"fmt"
)

// The root package documents these errors.
var (
	ErrNoSuchID      = errors.New("uidplugin: no such id")
	ErrNegativeID    = errors.New("uidplugin: negative id")
	ErrFutureID      = errors.New("uidplugin: the timestamp of the id is in the future")
	ErrUnknownID     = errors.New("uidplugin: unknown id")
	ErrOtherLayout   = errors.New("uidplugin: the id has another layout")
	ErrNotDecodable  = errors.New("uidplugin: the id cannot be decoded")
	ErrOtherDatabase = errors.New("uidplugin: the id belongs to another database")
	ErrNoModel       = errors.New("uidplugin: no model for the table")
	ErrNotKey        = errors.New("uidplugin: the id is not a primary key")
	ErrClause        = errors.New("uidplugin: clause not supported by Find")
)

// A failure is the reason why one id cannot be resolved. Callers get the error that Locator.IDError makes from it.
type failure struct {
	id  int64
	err error
}

func (e *failure) Error() string { return e.err.Error() }

func (e *failure) Unwrap() error { return e.err }

func failuref(id int64, format string, args ...any) error {
	return &failure{id, fmt.Errorf(format, args...)}
}

const maxListed = 20

// idErrors are errors of many ids. The text lists the first 20, one per line, and counts the rest.
type idErrors []error

func (e idErrors) Error() string {
	if len(e) <= maxListed {
		return errors.Join(e...).Error()
	}
	return fmt.Sprintf("%v\nand %d more", errors.Join(e[:maxListed]...), len(e)-maxListed)
}

func (e idErrors) Unwrap() []error { return e }
