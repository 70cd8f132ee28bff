package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A Status describes a followed table for operators.
type Status struct {
	Table     string
	Key       string // column of the ids
	Slack     time.Duration
	Published int64     // all rows with smaller ids are visible or will never be; not positive if there is no mark yet
	Raised    int64     // the trigger refuses smaller ids; higher than Published while the closer waits
	Now       time.Time // the database's clock
	Closer    string    // name of the process that closes; empty if no process has closed yet
	Until     time.Time // end of its turn, by the database's clock
	Trigger   TriggerState
	Holders   []Holder // open transactions that have inserted rows: first those of unknown age, then the oldest
	Broken    error    // why the table refuses all rows; nil if nothing is wrong
	Unread    error    // why Trigger, Raised or Holders could not be read
	Refused   error    // why rows could be missed, as [Enable] would say; nil if nothing is wrong
	Left      *Left    // what a table has left in its former schema; nil if nothing

	layout generator.Layout
}

// A TriggerState compares the trigger that a table has now with the trigger that was installed.
type TriggerState string

// The states of triggers.
const (
	TriggerInstalled TriggerState = "installed"
	TriggerGone      TriggerState = "gone"
	TriggerReplaced  TriggerState = "replaced"
	TriggerHidden    TriggerState = "hidden" // this user may not see it
)

// TimeOf returns the time of a mark; zero for the mark before the first round.
func (s *Status) TimeOf(mark int64) time.Time {
	p, err := s.layout.Decompose(mark)
	if mark <= 0 || err != nil {
		return time.Time{}
	}
	return p.Time
}

// Behind returns how far the published mark is behind the database's clock, or 0 before the first round. It is
// negative for a mark in the future.
func (s *Status) Behind() time.Duration {
	at := s.TimeOf(s.Published)
	if at.IsZero() {
		return 0
	}
	return s.Now.Sub(at)
}

// Ahead returns how far the trigger's mark, or a higher published mark, is ahead of the database's clock, or 0. The
// table refuses ids below the trigger's mark. If a wrong clock raised that mark, all new ids are refused.
func (s *Status) Ahead() time.Duration {
	at := s.TimeOf(max(s.Raised, s.Published))
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(s.Now), 0)
}

// Closing reports whether a process has the closer's turn now. A closer that was killed keeps it for some seconds.
func (s *Status) Closing() bool { return s.Closer != "" && s.Now.Before(s.Until) }

// StatusOf returns the status of a table. It reports false if the table is not followed.
func StatusOf(ctx context.Context, db *sqldb.DB, layout generator.Layout, table string) (s Status, ok bool, err error) {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return s, false, err
	}
	s.layout = layout
	t, _, err := f.located(ctx, db, Table{Name: table})
	if err == nil {
		err = newStatements(f, t).status(ctx, db.Quiet(), &s)
	}
	if err == nil && s.Table != "" {
		t.Key = s.Key
		if s.Refused = refuse(ctx, db.Quiet(), f, t); s.Refused == nil {
			s.Refused = refuseReplica(ctx, db.Quiet(), f)
		}
		if !errors.Is(s.Refused, ErrRefused) { // nil, or the context has ended, or a setting cannot be read
			s.Refused, err = nil, ctx.Err()
		}
	}
	if err != nil && noTable.MatchString(err.Error()) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("uidplugin: follow %s: %w", table, err)
	}
	return s, s.Table != "", err
}

// List returns the followed tables in the default schema, and in the schemas of the tables in known, because each
// of these schemas has its own UID_FOLLOW. It leaves out schemas of known tables that this user may not read.
func List(ctx context.Context, db *sqldb.DB, layout generator.Layout, known ...string) (list []Status, err error) {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, prefix := range f.prefixes(known) {
		var names []string
		t, _, err := f.located(ctx, db, Table{Name: prefix + markTable})
		if err == nil {
			names, err = f.tablesIn(ctx, db.Quiet(), t)
		}
		switch {
		case err != nil && (noTable.MatchString(err.Error()) || prefix != "" && notAllowed.MatchString(err.Error())):
			continue
		case err != nil:
			return nil, fmt.Errorf("uidplugin: list followed tables: %w", err)
		}
		for _, name := range names {
			s, ok, err := StatusOf(ctx, db, layout, name)
			if err != nil {
				return nil, err
			}
			if ok { // otherwise it was disabled meanwhile
				list = append(list, s)
			}
			left, elsewhere, err := f.leftBehind(ctx, db, layout, Table{Name: name, Schema: t.Schema})
			if err != nil {
				return nil, fmt.Errorf("uidplugin: follow %s: %w", name, err)
			}
			if left != nil && ok && !elsewhere {
				list = list[:len(list)-1]
			}
			if left != nil {
				list = append(list, *left)
			}
		}
	}
	return list, nil
}

var (
	noTable    = regexp.MustCompile(`Error (1049|1146) |SQLSTATE (42P01|3F000)|no such table|Error 1105 .*table \S+ not found`)
	notAllowed = regexp.MustCompile(`Error (1044|1142) |SQLSTATE 42501`)
)

// tablesIn returns the names in the table UID_FOLLOW of the schema of t that have the same schema prefix as t.Name.
func (f Flavor) tablesIn(ctx context.Context, db *sqldb.DB, t Table) (names []string, err error) {
	err = db.Query(ctx, func(r *sql.Rows) error {
		var name string
		err := r.Scan(&name)
		if inSchemaOf(name, "") == inSchemaOf(t.Name, "") {
			names = append(names, name)
		}
		return err
	}, "SELECT "+f.quote("TABLE_NAME")+" FROM "+f.in(t, markTable))
	slices.Sort(names)
	return names, err
}

// status reads the status of the table. It does not change result if the table is not followed.
func (s *statements) status(ctx context.Context, db *sqldb.DB, result *Status) error {
	err := db.Query(ctx, func(r *sql.Rows) error {
		var slack, until, now int64
		var installed string
		var found sql.NullString
		result.Table, result.Trigger = s.table.Name, TriggerInstalled
		err := r.Scan(&result.Key, &result.Published, &slack, &installed, &found, &result.Closer, &until, &now)
		result.Slack = time.Duration(slack) * time.Millisecond
		result.Until, result.Now = timeOf(until), timeOf(now)
		switch {
		case !found.Valid:
			result.Trigger = TriggerGone
		case found.String != installed:
			result.Trigger = TriggerReplaced
		}
		return err
	}, s.exact()+"SELECT "+s.flavor.columns("KEY_COLUMN, PUBLISHED, SLACK, TRIGGER_ID")+", "+s.found()+", "+
		s.flavor.columns("CLOSER, CLOSER_UNTIL")+", "+s.now()+" FROM "+s.marks()+" m"+s.row())
	if err != nil || result.Table == "" {
		return err
	}
	var hidden, unread error
	if result.Trigger == TriggerGone {
		if hidden = s.hidesTriggers(ctx, db); hidden != nil {
			result.Trigger = TriggerHidden
		}
	}
	if result.Trigger != TriggerGone {
		result.Broken = s.complete(ctx, db)
	}
	if !errors.Is(result.Broken, ErrNotEnabled) { // nil, or the context has ended
		result.Broken = nil
	}
	result.Raised, unread = s.raised(ctx, db)
	result.Holders, err = s.holders(ctx, db, result.Now)
	result.Unread = errors.Join(hidden, unread, err)
	return nil
}

// hidesTriggers returns an error if this user would not see the trigger.
func (s *statements) hidesTriggers(ctx context.Context, db *sqldb.DB) error {
	if s.flavor != MySQL && s.flavor != MariaDB {
		return nil
	}
	may := false
	err := db.Query(ctx, func(r *sql.Rows) error {
		var grant string
		err := r.Scan(&grant)
		may = may || strings.Contains(grant, "TRIGGER") || strings.Contains(grant, "ALL PRIVILEGES")
		return err
	}, "SHOW GRANTS")
	if err == nil && may {
		return nil
	}
	return errors.Join(errors.New("seeing the trigger needs the privilege TRIGGER on the table"), err)
}

// raised reads the mark of the trigger.
func (s *statements) raised(ctx context.Context, db *sqldb.DB) (mark int64, err error) {
	var value sql.NullInt64
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&value) }, "SELECT "+s.mark())
	if err == nil && !value.Valid {
		err = errors.New("it is missing, or this user may not read it")
	}
	if err != nil {
		return 0, fmt.Errorf("read the mark of the trigger: %w", err)
	}
	return value.Int64, nil
}
