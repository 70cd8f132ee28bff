package admin

import (
	"context"
	"errors"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/adopt"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Place is the origin of an id, and its row.
type Place struct {
	uidplugin.Location
	Row *Row `json:"row,omitempty"` // nil unless requested

	// If the database has assigned the number, Follows is the id before it, and Location has the origin of that id.
	Follows uidplugin.ID `json:"follows,omitempty"`

	Prefix string `json:"prefix,omitempty"` // of the given public id

	// MayBeRounded reports whether a program may have rounded another id to the number.
	MayBeRounded bool `json:"may_be_rounded,omitempty"`
}

// A Finder locates ids.
type Finder struct {
	*DB
	Plugin *uidplugin.Plugin
	Rows   bool   // read rows as well
	Column string // of the ids; empty for the primary key

	known map[workernode.Table]keyed
}

// Find locates an id. If the place is known but the row cannot be read, Find returns both the place and an error.
func (f *Finder) Find(ctx context.Context, id int64) (p Place, err error) {
	if p.Location, err = f.Plugin.Locate(ctx, uidplugin.ID(id)); err == nil && f.Rows {
		p.Row, err = f.Row(ctx, p.Location)
	}
	if f.Rows && IsWrongID(err) {
		if numbered, failed := f.numbered(ctx, id); failed == nil {
			return numbered, nil
		} else if !IsWrongID(failed) {
			return p, failed
		}
	}
	p.MayBeRounded = p.Row == nil && rounded.Looks(id)
	return p, f.checkRounded(ctx, id, err)
}

// numbered returns the row of a number that the database gave to a row of another program. It looks in the table of
// the id that the number follows.
func (f *Finder) numbered(ctx context.Context, id int64) (p Place, err error) {
	before, ok := adopt.Before(f.Plugin.Layout(), id)
	if !ok || f.SQL.Dialect() == sqlite {
		return p, errNoRow
	}
	if p.Location, err = f.Plugin.Locate(ctx, uidplugin.ID(before)); err != nil {
		return p, err
	}
	p.ID, p.Follows = uidplugin.ID(id), p.ID
	p.Row, err = f.Row(ctx, p.Location)
	return p, err
}

var codes = []struct {
	err  error
	name string
}{
	{uidplugin.ErrNegativeID, "negative_id"}, {uidplugin.ErrFutureID, "future_id"},
	{uidplugin.ErrOtherLayout, "other_layout"}, {uidplugin.ErrNotDecodable, "not_decodable"},
	{uidplugin.ErrUnknownID, "unknown_id"}, {errNoRow, "no_row"}, {ErrRow, "row_not_readable"},
	{generator.ErrLayout, "not_decodable"},
}

// CodeOf returns the name that an error about an id has in JSON, or "" for other errors.
func CodeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return ""
}

// IsWrongID reports whether an error is about the id instead of the database.
func IsWrongID(err error) bool { return errors.Is(err, uidplugin.ErrNoSuchID) || CodeOf(err) != "" }
