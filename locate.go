package uidplugin

import (
	"context"
	"fmt"
	"strconv"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Location describes the origin of an id.
type Location struct {
	ID ID `json:"id"`
	generator.Parts
	Database string `json:"database,omitempty"` // table's database, with WithRegistry or WithDatabaseName; empty for WORKER_NODE's database
	Table    string `json:"table,omitempty"`    // empty if the worker id serves all tables

	// Session is the process that made the id. It is zero with [WithWorkerID], because other processes may have had
	// the same worker id. It is also zero if "uid sessions prune" removed the session. The id may be invented.
	Session workernode.Session `json:"session"`
}

// String returns a line for logs and people. It quotes texts from the tables.
func (l Location) String() string {
	table := "a table"
	if l.Table != "" {
		table = strconv.Quote(l.Table)
	}
	if l.Database != "" {
		table += " of the database " + strconv.Quote(l.Database)
	}
	if l.Session == (workernode.Session{}) {
		return fmt.Sprintf("id %d of %s, made %s by a process that is not known", l.ID, table, supply.FormatTime(l.Time))
	}
	return fmt.Sprintf("id %d of %s, made %s by %q on %q, port %q", l.ID, table, supply.FormatTime(l.Time),
		l.Session.Application, l.Session.Host, l.Session.Port)
}

// Decode splits an id by the plugin's layout. It sends no statement, so it cannot check that the id was ever made.
//
// The error wraps [ErrNegativeID], [generator.ErrLayout] for too many bits, or [ErrNotDecodable] for a number that
// is too small. Before db.Use a small number counts as an id of the first tick. With [WithWorkerID] it also does so
// after db.Use, if all ids of the plugin have the layout. For other layouts use [generator.Layout.Decompose].
func (p *Plugin) Decode(id ID) (generator.Parts, error) {
	if p == nil || p.shared == nil {
		return generator.Parts{}, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	parts, err := p.shared.locator.Load().Decode(int64(id))
	if err != nil {
		return parts, &IDError{id, err}
	}
	return parts, nil
}

// Locate returns the table of an id, the process that made it, and its time. It queries the database once. With
// [WithWorkerID] it sends no statement and knows only the time. Use Find to check that the row exists.
//
// The error wraps [ErrNegativeID], [ErrFutureID], [ErrUnknownID], [ErrNotDecodable] or [ErrOtherLayout], or comes from
// the database. A number that JavaScript or a spreadsheet has rounded may be an id of another table, so you should read
// ids as text.
func (p *Plugin) Locate(ctx context.Context, id ID) (Location, error) {
	loc, err := p.located()
	if err != nil {
		return Location{}, err
	}
	l, err := loc.Locate(ctx, p.db, int64(id))
	if err != nil {
		return Location{}, err
	}
	return Location{ID: id, Parts: l.Parts, Database: l.Database, Table: l.Table, Session: l.Session}, nil
}

func (p *Plugin) located() (*lookup.Locator, error) {
	shared, err := p.initialized()
	if err != nil {
		return nil, err
	}
	return shared.locator.Load(), nil
}

// An IDError is the reason why one id cannot be resolved.
type IDError struct {
	ID  ID
	Err error
}

// Error returns the text of Err, which contains the id. It adds a hint if the id looks rounded.
func (e *IDError) Error() string {
	if rounded.Looks(int64(e.ID)) {
		return e.Err.Error() + "; JavaScript or a spreadsheet may have rounded the number, so read ids as text"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *IDError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrNoSuchID], which every IDError wraps.
func (e *IDError) Is(target error) bool { return target == ErrNoSuchID }

// newIDError makes an error for package lookup.
func newIDError(id int64, err error) error { return &IDError{ID(id), err} }
