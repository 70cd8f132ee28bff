// wing: follow

package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// A Consumer describes a consumer of a followed table.
type Consumer struct {
	Database   string       `json:"database,omitempty"` // of the cursor, as in WORKER_NODE; empty for the registry's
	Name       string       `json:"consumer"`
	Space      string       `json:"space,omitempty"` // the database of the table, perhaps with a schema, if it is not the cursor's
	Table      string       `json:"table"`
	LastID     uidplugin.ID `json:"last_id"` // rows up to this id are handled
	LastTime   time.Time    `json:"last_time,omitzero"`
	Rows       int64        `json:"rows_behind"` // rows above LastID, but no more than 10,001; -1 if unknown
	Behind     int64        `json:"behind_ms"`   // age of the oldest of these rows; 0 without such rows
	State      string       `json:"state"`       // running, stopped, paused or stuck
	Holder     string       `json:"holder"`      // host and port of the process that holds the cursor; or empty
	Attempts   int64        `json:"attempts"`    // how often the next row has failed
	RetryAt    time.Time    `json:"retry_at,omitzero"`
	StuckID    uidplugin.ID `json:"stuck_id,omitzero"` // the row that fails; 0 if none does
	StuckSince time.Time    `json:"stuck_since,omitzero"`
	Error      string       `json:"error,omitzero"`  // why that row fails
	Unread     string       `json:"unread,omitzero"` // why the rows could not be counted
	Findings   []Finding    `json:"findings"`

	Now      time.Time `json:"-"` // the clock of the cursor's database
	schema   string    // of the cursor
	disabled bool      // its table is not followed
}

// States of consumers.
const (
	ConsumerRunning = "running"
	ConsumerStopped = "stopped" // no process holds the cursor
	ConsumerPaused  = "paused"
	ConsumerStuck   = "stuck"
)

// TableName returns the name of the table for people.
func (c Consumer) TableName() string {
	name := c.key().TableName()
	if c.Database != "" {
		return c.Database + "." + name
	}
	return name
}

// RowsBehind returns Rows as a text for people.
func (c Consumer) RowsBehind() string { return RowsText(c.Rows) }

// RowsText returns a number of rows as a text for people.
func RowsText(n int64) string {
	switch {
	case n < 0:
		return "-"
	case n > follow.MaxWaiting:
		return fmt.Sprintf("over %d", follow.MaxWaiting)
	}
	return fmt.Sprint(n)
}

func (c Consumer) key() follow.ConsumerKey {
	return follow.ConsumerKey{Consumer: c.Name, Space: c.Space, Table: c.Table, Schema: c.schema}
}

// Consumers returns the consumers whose cursors are in this database or in the others.
func (d *DB) Consumers(ctx context.Context) (list []Consumer, err error) {
	known, _, err := d.knownTables(ctx)
	if err != nil {
		return nil, err
	}
	names, byName := d.databases()
	for _, name := range names {
		found, err := follow.ListConsumers(ctx, byName[name].SQL, tablesOf(known, name)...)
		if err != nil {
			return nil, err
		}
		list = append(list, consumersOf(name, d.Layout, found)...)
	}
	return list, nil
}

// ConsumersOn returns the consumers whose cursors are in a database, also in the schemas of the known tables.
func ConsumersOn(
	ctx context.Context, db *gorm.DB, layout generator.Layout, timeout time.Duration, known []string,
) ([]Consumer, error) {
	statements, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, err
	}
	found, err := follow.ListConsumers(ctx, statements, known...)
	return consumersOf("", layout, found), err
}

func consumersOf(database string, layout generator.Layout, found []follow.CursorStatus) (list []Consumer) {
	for _, s := range found {
		c := Consumer{
			Database: database, Name: s.Consumer, Space: s.Space, Table: s.Table, LastID: uidplugin.ID(s.Last), Rows: s.Waiting,
			State: ConsumerStopped, Attempts: s.Attempts, RetryAt: s.RetryAt, StuckID: uidplugin.ID(s.StuckID),
			StuckSince: s.StuckSince, Error: s.Error, Now: s.Now, schema: s.Schema,
		}
		if p, err := layout.Decompose(s.Last); err == nil && s.Last > 0 {
			c.LastTime = p.Time.UTC()
		}
		if p, err := layout.Decompose(s.Oldest); err == nil && s.Oldest > 0 {
			c.Behind = max(s.Now.Sub(p.Time), 0).Milliseconds()
		}
		if s.Held() {
			c.State, c.Holder = ConsumerRunning, follow.HolderHost(s.Holder)
		}
		if c.StuckID != 0 {
			c.State = ConsumerStuck
		}
		if s.Paused {
			c.State = ConsumerPaused
		}
		if s.Unread != nil {
			c.Unread, c.disabled = s.Unread.Error(), errors.Is(s.Unread, follow.ErrNotEnabled)
		}
		c.Findings = append([]Finding{}, c.findings()...)
		list = append(list, c)
	}
	return list
}

func (c Consumer) findings() (list []Finding) {
	command := fmt.Sprintf("%s --table %s", c.Name, c.TableName())
	behind := time.Duration(c.Behind) * time.Millisecond
	switch {
	case c.disabled:
		return []Finding{{Code: CodeConsumerStopped,
			Text: fmt.Sprintf("the consumer %s cannot run, because %s is not followed", c.Name, c.TableName()),
			Advice: fmt.Sprintf("Run \"uid follow enable %s\", or call follow.Enable, and start it again. If nobody needs it, "+
				"run \"uid follow consumers remove %s\".", c.TableName(), command)}}
	case c.State == ConsumerStuck && c.Now.Sub(c.StuckSince) > standstillAfter:
		return []Finding{{Code: CodeConsumerStuck,
			Text: fmt.Sprintf("the consumer %s fails at the row %d of %s since %s, and later rows wait for it: %s",
				c.Name, c.StuckID, c.TableName(), Time(c.StuckSince), c.Error),
			Advice: fmt.Sprintf("%s To pass the row over, run \"uid follow consumers reset %s --to %d\".",
				c.cure(), command, c.StuckID)}}
	case c.State == ConsumerStopped && behind > standstillAfter:
		return []Finding{{Code: CodeConsumerStopped,
			Text: fmt.Sprintf("no process runs the consumer %s, and rows of %s wait for it: %s, the oldest for %v",
				c.Name, c.TableName(), c.RowsBehind(), behind.Round(time.Second)),
			Advice: fmt.Sprintf("Start a process with this consumer, or look for errors in its log. If nobody needs it, run \"uid follow consumers remove %s\".", command)}}
	case c.State == ConsumerPaused && behind > standstillAfter:
		return []Finding{{Code: CodeConsumerPaused,
			Text: fmt.Sprintf("the consumer %s is paused, and rows of %s wait for it: %s, the oldest for %v",
				c.Name, c.TableName(), c.RowsBehind(), behind.Round(time.Second)),
			Advice: fmt.Sprintf("When it may go on, run \"uid follow consumers resume %s\".", command)}}
	}
	return nil
}

// cure is the advice for a row that fails.
func (c Consumer) cure() string {
	if c.Holder == "" {
		return "Correct the reason, and start a process that runs the consumer, because none does."
	}
	return "Correct the reason. Then the consumer goes on within a minute, or at once if you restart its processes."
}

func (d *DB) checkConsumers(ctx context.Context) (list []Finding, err error) {
	consumers, err := d.Consumers(ctx)
	for _, c := range consumers {
		list = append(list, c.Findings...)
	}
	return list, err
}

// Consumer returns a consumer. The table may be empty if the consumer has only one table.
func (d *DB) Consumer(ctx context.Context, name, table string) (c Consumer, err error) {
	all, err := d.Consumers(ctx)
	var tables []string
	for _, one := range all {
		// Errors of consumers name the table as one.key().TableName() does, without the database.
		if one.Name == name && slices.Contains([]string{"", one.Table, one.key().TableName(), one.TableName()}, table) {
			c, tables = one, append(tables, one.TableName())
		}
	}
	switch {
	case err != nil:
		return c, err
	case len(tables) > 1:
		return c, fmt.Errorf("the consumer %q has several tables; pass one of them as --table: %s", name, strings.Join(tables, ", "))
	case len(tables) == 0 && table != "":
		name += " of " + table
	}
	if len(tables) == 0 {
		err = fmt.Errorf("%s: %w; \"uid follow consumers\" lists all consumers, and --database adds the consumers of another database", name,
			follow.ErrNoConsumer)
	}
	return c, err
}

// onCursor calls f with the database of a consumer's cursor, and with the time limit of a statement.
func (d *DB) onCursor(ctx context.Context, c Consumer, f func(context.Context, *sqldb.DB, follow.ConsumerKey) error) error {
	_, home := d.databases()
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return f(ctx, home[c.Database].SQL, c.key())
}

// RowsBetween counts the rows between the cursor of a consumer and another id, but no more than 10,001.
func (d *DB) RowsBetween(ctx context.Context, c Consumer, to int64) (n int64, err error) {
	err = d.onCursor(ctx, c, func(ctx context.Context, db *sqldb.DB, k follow.ConsumerKey) error {
		n, err = follow.CountRows(ctx, db, k, min(int64(c.LastID), to), max(int64(c.LastID), to))
		return err
	})
	return n, err
}

// ResetConsumer lets a consumer go on with the rows above an id.
func (d *DB) ResetConsumer(ctx context.Context, c Consumer, to int64) error {
	return d.onCursor(ctx, c, func(ctx context.Context, db *sqldb.DB, k follow.ConsumerKey) error {
		return follow.ResetConsumer(ctx, db, k, to)
	})
}

// RemoveConsumer removes the cursor of a consumer.
func (d *DB) RemoveConsumer(ctx context.Context, c Consumer) error {
	return d.onCursor(ctx, c, follow.RemoveConsumer)
}

// PauseConsumer pauses a consumer, or resumes it.
func (d *DB) PauseConsumer(ctx context.Context, c Consumer, paused bool) error {
	return d.onCursor(ctx, c, func(ctx context.Context, db *sqldb.DB, k follow.ConsumerKey) error {
		return follow.PauseConsumer(ctx, db, k, paused)
	})
}

// CursorAt returns the cursor with which a consumer next handles the rows from the time t on.
func (d *DB) CursorAt(t time.Time) (int64, error) {
	if !d.hasSpace() {
		return 0, errors.New("this database has no id space, so the layout of the ids is not known; pass an id instead of a time")
	}
	mark, err := follow.MarkAt(d.Layout, t)
	return max(mark-1, 0), err
}

// CursorNow returns the cursor with which a consumer next handles new rows, as with follow.FromNow. The table
// accepts ids that are younger than its slack, so rows with such ids count as new: they may not be inserted yet.
func (d *DB) CursorNow(ctx context.Context, c Consumer) (id int64, err error) {
	var slack time.Duration
	err = d.onCursor(ctx, c, func(ctx context.Context, db *sqldb.DB, k follow.ConsumerKey) (err error) {
		slack, err = follow.SlackOf(ctx, db, k)
		return err
	})
	if err != nil && d.hasSpace() {
		return 0, fmt.Errorf("the slack of %s is not known: %w; instead of now pass an age that is longer than the slack, such as 2s",
			c.TableName(), err)
	}
	return d.CursorAt(c.Now.Add(-slack))
}

// CheckCursor returns an error for an id that cannot be a cursor.
func (d *DB) CheckCursor(id int64, now time.Time) error {
	p, err := d.Layout.Decompose(id)
	switch {
	case id < 0:
		return fmt.Errorf("the cursor %d must not be negative; 0 is before the first row", id)
	case !d.hasSpace():
		return nil
	case err == nil && p.Time.After(now.Add(follow.MaxSlack)):
		return fmt.Errorf("the cursor %d is of %s, and would pass over all rows until then", id, Time(p.Time))
	}
	return err
}

// consumerNotes adds a note with the consumers of a table that was renamed.
func (d *DB) consumerNotes(ctx context.Context, r Renaming, notes []string) ([]string, error) {
	_, home := d.databases()
	keys, err := follow.ConsumersOf(ctx, home[r.Database].SQL, r.From)
	var names []string
	for _, k := range keys {
		names = append(names, k.Consumer)
	}
	if len(names) > 0 {
		notes = append(notes, fmt.Sprintf("Its consumers go on with the rows of %s: %s", r.To, strings.Join(names, ", ")))
	}
	return notes, err
}

// renameConsumers renames the table in the cursors of its consumers, and notes each cursor that keeps the old name.
func (d *DB) renameConsumers(ctx context.Context, r *Renaming) error {
	_, home := d.databases()
	_, left, err := follow.RenameConsumers(ctx, home[r.Database].SQL, r.From, r.To)
	note := `The cursor of %s stays at %s, because %s has one. ` +
		`If %[2]s has the higher LAST ID (uid follow consumers), set %[3]s to it, then remove the cursor of %[2]s`
	if r.From[:strings.LastIndexByte(r.From, '.')+1] != r.To[:strings.LastIndexByte(r.To, '.')+1] {
		note = `The cursor of %s stays at %s, because %s may be in another schema. Before a process runs this consumer, ` +
			`copy the row into UID_CURSOR of that schema, with TABLE_NAME %[3]s, because without a cursor it begins anew`
	}
	for _, k := range left {
		r.Notes = append(r.Notes, fmt.Sprintf(note, k.Consumer, r.From, r.To))
	}
	return err
}

// cursorNotes returns a step for each consumer, so that people note how far it has come.
func (d *DB) cursorNotes(ctx context.Context) (steps []RemovalStep, err error) {
	list, err := d.Consumers(ctx)
	for _, c := range list {
		steps = append(steps, RemovalStep{Database: c.Database, Left: true,
			Text: fmt.Sprintf("Note that the consumer %s has handled the rows of %s up to the id %d, because its cursor is dropped below.",
				c.Name, c.TableName(), c.LastID)})
	}
	return steps, err
}

// unhandled returns a refusal if rows wait for consumers.
func (d *DB) unhandled(ctx context.Context) (refusal, err error) {
	list, err := d.Consumers(ctx)
	var errs []error
	for _, c := range list {
		if c.Rows > 0 {
			errs = append(errs, fmt.Errorf("rows of %s wait for the consumer %s, which is %s: %s. Run the consumer until no row waits, or, if nobody needs it, "+
				`run "uid follow consumers remove %s --table %s"`, c.TableName(), c.Name, c.State, c.RowsBehind(), c.Name, c.TableName()))
		}
	}
	return errors.Join(errs...), err
}
