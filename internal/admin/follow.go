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
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A Followed describes a followed table.
type Followed struct {
	Database string              `json:"database,omitempty"` // as in WORKER_NODE; empty for the registry's
	Table    string              `json:"table"`
	Key      string              `json:"key"`
	Slack    int64               `json:"slack_ms"`
	Mark     uidplugin.ID        `json:"mark,omitempty"` // followers read the rows below it; 0 if there is none yet
	MarkTime time.Time           `json:"mark_time,omitzero"`
	Behind   int64               `json:"behind_ms"`        // by the database's clock; negative for a mark in the future
	Ahead    int64               `json:"ahead_ms"`         // how far Mark or the trigger's mark is in the future
	Closer   string              `json:"closer"`           // host and port of the process raising Mark; or empty
	Until    time.Time           `json:"until,omitzero"`   // until then only Closer raises Mark; zero: all may
	Closing  bool                `json:"closing"`          // Until is in the future
	Trigger  follow.TriggerState `json:"trigger"`          // installed, gone, replaced or hidden
	Holders  []follow.Holder     `json:"holders"`          // open transactions that have inserted rows, the oldest first
	Unread   string              `json:"unread,omitzero"`  // why Trigger, its mark or Holders could not be read
	Refused  string              `json:"refused,omitzero"` // why followers could miss rows
	Broken   string              `json:"broken,omitzero"`  // why the table refuses all rows
	Findings []Finding           `json:"findings"`
}

// Name returns the name of the table for people.
func (f Followed) Name() string {
	if f.Database != "" {
		return f.Database + "." + f.Table
	}
	return f.Table
}

// Followed returns the followed tables of this database and of the others. If its last argument names a table,
// Followed returns just that table.
func (d *DB) Followed(ctx context.Context, only string) (list []Followed, err error) {
	if only != "" {
		name, home, table := d.named(ctx, only)
		s, ok, err := follow.StatusOf(ctx, home.SQL, d.Layout, table)
		if ok {
			list = followedOf(name, d.isRegional(), s)
		}
		return list, err
	}
	known, _, err := d.knownTables(ctx)
	if err != nil {
		return nil, err
	}
	names, home := d.databases()
	for _, name := range names {
		found, err := follow.List(ctx, home[name].SQL, d.Layout, tablesOf(known, name)...)
		if err != nil {
			return nil, err
		}
		list = append(list, followedOf(name, d.isRegional(), found...)...)
	}
	return list, nil
}

// FollowedOn returns the followed tables of a database. It also looks in the schemas of the known tables.
func FollowedOn(
	ctx context.Context, db *gorm.DB, layout generator.Layout, timeout time.Duration, known []string,
) ([]Followed, error) {
	statements, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, err
	}
	found, err := follow.List(ctx, statements, layout, known...)
	return followedOf("", true, found...), err
}

// isRegional reports whether rows may be replicated from other regions. Followers leave out such rows.
func (d *DB) isRegional() bool { return d.Registry.Region.Of > 1 }

func followedOf(database string, regional bool, found ...follow.Status) (list []Followed) {
	for _, s := range found {
		f := Followed{
			Database: database, Table: s.Table, Key: s.Key, Slack: s.Slack.Milliseconds(), Behind: s.Behind().Milliseconds(),
			Ahead: s.Ahead().Milliseconds(), Closer: follow.HolderHost(s.Closer), Closing: s.Closing(), Trigger: s.Trigger,
			Holders: append([]follow.Holder{}, s.Holders...),
		}
		if s.Published > 0 {
			f.Mark, f.MarkTime = uidplugin.ID(s.Published), s.TimeOf(s.Published).UTC()
		}
		if s.Closer != "" && s.Until.UnixMilli() > 0 { // 0 means that the closer has given up its turn
			f.Until = s.Until.UTC()
		}
		if s.Unread != nil {
			f.Unread = s.Unread.Error()
		}
		if s.Broken != nil {
			f.Broken = strings.TrimPrefix(s.Broken.Error(), follow.ErrNotEnabled.Error()+": ")
		}
		if s.Refused != nil && !(regional && errors.Is(s.Refused, follow.ErrReplicated)) {
			f.Refused = s.Refused.Error()
		}
		if f.Findings = append([]Finding{}, f.findings()...); s.Left != nil {
			f.Findings = []Finding{f.leftBehind(s.Left)}
		}
		list = append(list, f)
	}
	return list
}

// EnableFollow lets a table be followed. An empty key means the primary key. EnableFollow gives up if a transaction
// uses the table for longer than the time limit of statements.
func (d *DB) EnableFollow(ctx context.Context, name, key string, slack time.Duration) (warning string, err error) {
	_, home, table := d.named(ctx, name)
	t, err := home.table(ctx, table)
	switch {
	case err != nil:
		return "", err
	case len(t.columns) == 0:
		return "", fmt.Errorf("the table %q does not exist in this database, or this user may not see it; for a table of "+
			"another database pass --database NAME=DSN, and write it as NAME.TABLE if several have it", name)
	}
	if err := follow.CheckSlack(slack); err != nil {
		return "", err
	} else if slack < d.Layout.Tick {
		return "", fmt.Errorf("the slack %v must be at least a tick of the layout, %v", slack, d.Layout.Tick)
	}
	if key == "" {
		primary, ok := keyOf(t.columns)
		if !ok {
			return "", fmt.Errorf("%s does not have a single column as its primary key; pass the column of its ids as --key", name)
		}
		key = primary.Name
	}
	if err := home.checkFollowable(ctx, t, key); err != nil {
		return "", err
	}
	if slices.ContainsFunc(t.columns, func(c column) bool { return c.Name == key && c.Auto }) {
		warning = fmt.Sprintf("the database numbers %s.%s, so a row that is inserted without the plugin is usually refused; "+
			"let all programs that insert rows use the plugin", name, key)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return warning, follow.Enable(ctx, home.SQL, follow.Table{Name: table, Key: key, Slack: slack, Regional: d.isRegional()})
}

// checkFollowable returns an error for keys that have no time, because the table would refuse all new rows.
func (d *DB) checkFollowable(ctx context.Context, t table, key string) error {
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.Name == key })
	if i < 0 || !t.columns[i].isInteger() {
		return nil // follow.Enable returns an error for it
	}
	largest, err := d.largest(ctx, t, t.columns[i])
	if err != nil || !largest.Valid || largest.Int64>>(d.Layout.WorkerBits+d.Layout.SequenceBits) > 0 {
		return err
	}
	return fmt.Errorf("the largest %s of %s is %d, which is not an id with a time: with keys from a segment or from the "+
		"database, the table would refuse all new rows", key, t.name, largest.Int64)
}

var errNotFollowed = errors.New(`the table is not followed; "uid follow status" lists those that are`)

// DisableFollow makes a table an ordinary one again. The tables of the plugin may be gone.
func (d *DB) DisableFollow(ctx context.Context, name string) error {
	list, err := d.Followed(ctx, name)
	_, home, table := d.named(ctx, name)
	if err == nil && len(list) == 0 {
		var installed bool // whether a trigger is left, although the rest was removed or the table was renamed
		if installed, err = follow.IsInstalled(ctx, home.SQL, follow.Table{Name: table}); err == nil && !installed {
			err = fmt.Errorf("%s: %w", name, errNotFollowed)
		}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return follow.Disable(ctx, home.SQL, follow.Table{Name: table})
}

// ResetFollow sets the mark of a table back to the present time minus the slack.
func (d *DB) ResetFollow(ctx context.Context, name string) error {
	_, home, table := d.named(ctx, name)
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return follow.Reset(ctx, home.SQL, table, d.Layout, d.Now)
}

// standstillAfter is how long a mark may lag, or rows may wait for a consumer, until a finding reports it.
const standstillAfter = time.Minute

// checkFollowed looks for followed tables whose followers may miss rows, or get none.
func (d *DB) checkFollowed(ctx context.Context) (list []Finding, err error) {
	tables, err := d.Followed(ctx, "")
	for _, f := range tables {
		list = append(list, f.Findings...)
		if f.Trigger == follow.TriggerHidden || f.isLate() && f.Closing && f.Unread != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", f.Name(), f.Unread))
		}
	}
	return list, err
}

func (f Followed) behind() time.Duration { return time.Duration(f.Behind) * time.Millisecond }

func (f Followed) isLate() bool {
	return f.behind()-time.Duration(f.Slack)*time.Millisecond > standstillAfter
}

func (f Followed) findings() (list []Finding) {
	switch f.Trigger {
	case follow.TriggerGone:
		list = append(list, Finding{Code: CodeFollowTrigger,
			Text: fmt.Sprintf("%s is followed, but its trigger is gone, so followers have stopped, and rows may have "+
				"come unnoticed", f.Name()),
			Advice: enableAgain})
	case follow.TriggerReplaced:
		list = append(list, Finding{Code: CodeFollowTrigger,
			Text: fmt.Sprintf("%s is followed, but its trigger is not the one that was installed, so followers have "+
				"stopped, and rows may have come unnoticed", f.Name()),
			Advice: enableAgain})
	}
	if f.Broken != "" {
		list = append(list, Finding{Code: CodeFollowBroken,
			Text: fmt.Sprintf("%s is followed, but refuses all new rows: %s", f.Name(), f.Broken),
			Advice: `Run "uid follow enable". If it reports that a part is missing, first run "uid follow disable"; ` +
				`followers do not see rows that come below their cursors meanwhile.`})
	}
	if f.Refused != "" {
		list = append(list, Finding{Code: CodeFollowRefused, Text: f.Name() + " is followed, but " + f.Refused,
			Advice: "Change this, or follow the table on another server. If it does not concern the rows of this table, ignore this code."})
	}
	if f.Ahead > time.Second.Milliseconds() {
		list = append(list, Finding{Code: CodeFollowAhead,
			Text: fmt.Sprintf("the mark of %s is %v ahead of the database's clock, so followers stand still for that long, "+
				"and the table refuses rows whose ids are below the mark",
				f.Name(), time.Duration(f.Ahead)*time.Millisecond),
			Advice: `If the database's clock was set back, only correct the clock. If it was ahead before, correct ` +
				`it, then run "uid follow reset"; its help explains what followers may miss.`})
	}
	if !f.isLate() {
		return list
	}
	text := fmt.Sprintf("the mark of %s is %v behind the database's clock, so followers get no new rows: ",
		f.Name(), f.behind().Round(time.Second))
	switch old := f.blocking(); {
	case !f.Closing:
		last := "no process has raised it since " + Time(f.Until)
		if f.Until.IsZero() {
			last = "no process follows it now"
		}
		list = append(list, Finding{Code: CodeFollowStopped, Text: text + last,
			Advice: `Start a follower, or look for its errors. If "uid follow consumers" lists a paused consumer of it, run "uid ` +
				`follow consumers resume". If nobody follows the table, run "uid follow disable".`})
	case len(old) > 0:
		since, more := "a transaction since "+Time(old[0].Since), ""
		if old[0].Since.IsZero() {
			since = "a transaction of an unknown age"
		}
		if len(old) > 1 {
			more = fmt.Sprintf(" and %d more", len(old)-1)
		}
		list = append(list, Finding{Code: CodeFollowStopped,
			Text:   text + "it waits for " + old[0].String() + ", " + since + more,
			Advice: "End the transaction. Transactions that insert rows into a followed table should be short."})
	}
	return list
}

// leftBehind is the finding about a table that was moved to another schema of PostgreSQL.
func (f Followed) leftBehind(former *follow.Left) Finding {
	text := fmt.Sprintf("%s was followed in the schema %s, and is in another one now", f.Name(), former.Schema)
	if former.Trigger != "" {
		text += fmt.Sprintf(": followers of %s have stopped, and its trigger still calls a function in the schema %s", former.Trigger, former.Schema)
	}
	return Finding{Code: CodeFollowTrigger, Text: text, Fix: former.Remedy,
		Advice: `Run the statements, and "uid follow enable". Rows may have come unnoticed meanwhile. Consumers begin anew ` +
			`unless you also move their rows of UID_CURSOR.`}
}

const enableAgain = `Run "uid follow enable" again, and compare the rows that came since then with those that ` +
	`followers have. If the table was renamed or dropped, run "uid follow disable" with this name.`

// blocking returns the transactions that are open for over half of standstillAfter, or for an unknown time.
func (f Followed) blocking() (list []follow.Holder) {
	now := f.MarkTime.Add(f.behind())
	for _, h := range f.Holders {
		if h.Since.IsZero() || now.Sub(h.Since) > standstillAfter/2 {
			list = append(list, h)
		}
	}
	return list
}

func (d *DB) planFollow(ctx context.Context, known []workernode.Table) (steps []RemovalStep, err error) {
	if steps, err = d.cursorNotes(ctx); err != nil {
		return nil, err
	}
	names, home := d.databases()
	for _, name := range names {
		statements, err := follow.Removal(ctx, home[name].SQL, tablesOf(known, name)...)
		if err != nil {
			return nil, err
		}
		if len(statements) > 0 {
			steps = append(steps, RemovalStep{
				Database: name, Text: "End following first: without the tables UID_*, the triggers of followed tables would refuse new rows.", SQL: statements,
				on:   home[name],
				exec: func(ctx context.Context, statement string) error { return follow.Exec(ctx, home[name].SQL, statement) },
			})
		}
	}
	return steps, nil
}

// followNotes adds notes about what to do if the table was followed before it was renamed.
func (d *DB) followNotes(ctx context.Context, r Renaming, notes []string) ([]string, error) {
	name := func(table string) string { return workernode.Table{Database: r.Database, Name: table}.String() }
	from, to := name(r.From), name(r.To)
	followed, err := d.Followed(ctx, from)
	if len(followed) > 0 {
		notes = append(notes, fmt.Sprintf(`%s was followed. Run "uid follow enable %s", and when a follower has begun, `+
			`"uid follow disable %s"`, from, to, from))
	}
	if err != nil {
		return notes, err
	}
	return d.consumerNotes(ctx, r, notes)
}
