package follow

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// A ConsumeOption changes [Consume] and [ConsumeBatch]. [WithRewind] and [WithRowLocks] are such options, too.
type ConsumeOption interface{ consume(*consumeOptions) }

type consumeOptions struct {
	rowsOptions
	fromNow bool
	after   uidplugin.ID
	effects *gorm.DB
	into    bool
}

type consumeOption func(*consumeOptions)

func (f consumeOption) consume(o *consumeOptions) { f(o) }

func (f RowsOption) consume(o *consumeOptions) {
	if f != nil {
		f(&o.rowsOptions)
	}
}

// FromNow makes a new consumer begin with the rows that come from now on. Without it, the consumer begins with the
// oldest row. A consumer that has a cursor goes on from that cursor.
func FromNow() ConsumeOption {
	return consumeOption(func(o *consumeOptions) { o.fromNow, o.after = true, 0 })
}

// From makes a new consumer begin with the first row after an id. A consumer with a cursor goes on from that cursor.
func From(after uidplugin.ID) ConsumeOption {
	return consumeOption(func(o *consumeOptions) { o.fromNow, o.after = false, after })
}

// Into makes the handler write into another database: its tx belongs to effects. The cursor is also in that database,
// in a table UID_CURSOR that Consume creates. If two databases whose tables are followed have the same name, give their
// consumers different names, because they would share a cursor and miss rows.
//
// If only the database of the rows loses commits, as after a failover, rows could be missed. Consume then returns
// an error, or with [WithRewind] goes back to an id below which no row is new. A process that takes over later also
// notices the loss, because the cursor remembers how far the table had been read. But UID_FOLLOW keeps only the
// marks of the last 15 seconds or so in which rows came, or fewer if the slack is below 500 ms. If all processes
// of a consumer stand still for longer than that after a loss, while others read the table, set the cursor back.
func Into(effects *gorm.DB) ConsumeOption {
	return consumeOption(func(o *consumeOptions) { o.effects, o.into = effects, true })
}

// optionsOf returns the options of a consumer. The error wraps [uidplugin.ErrOption].
func optionsOf(name string, size int, options []ConsumeOption) (o consumeOptions, err error) {
	for _, option := range options {
		if option != nil {
			option.consume(&o)
		}
	}
	const maxLength = 128
	switch {
	case name == "" || len(name) > maxLength || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl),
		strings.TrimSpace(name) != name: // MySQL compares without spaces at the end, so "a" and "a " would share a cursor
		err = fmt.Errorf("%w: the name of the consumer is %.200q: it must have 1 to %d bytes of UTF-8, without control characters,"+
			" and without spaces at its ends", uidplugin.ErrOption, name, maxLength)
	case size < 1:
		err = fmt.Errorf("%w: the size of a batch is %d, but must be at least 1", uidplugin.ErrOption, size)
	case o.into && o.effects == nil:
		err = fmt.Errorf("%w: Into(nil)", uidplugin.ErrOption)
	}
	return o, err
}
