package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A statement that creates or drops a trigger waits for the transactions that use the table, and everybody else queues
// up behind it. So it waits briefly, and tries again for a while.
const (
	lockPatience = 500 * time.Millisecond
	lockFor      = time.Minute
)

var locksTable = regexp.MustCompile(`(?m)^\s*(CREATE|DROP) TRIGGER`)

// install runs a statement of an installation. It tries again after conflicts with other processes.
func install(ctx context.Context, db *sqldb.DB, f Flavor, t Table, statement string) error {
	db = db.Quiet() // tries may fail
	begin, locks := time.Now(), locksTable.MatchString(statement)
	for try := 1; ; try++ {
		var err error
		if locks && (f == MySQL || f == MariaDB) {
			err = briefly(ctx, db, f, t, statement)
		} else {
			err = db.ExecRaw(ctx, statement)
		}
		if err == nil || ctx.Err() != nil || !isConflict(err) || !locks && try > 10 {
			return err
		}
		pause := time.Duration(try) * 20 * time.Millisecond
		if locks {
			if time.Since(begin) > lockFor {
				return fmt.Errorf("transactions that use the table have not ended at the same time for %v; "+
					"try again when there are fewer long ones: %w", lockFor, err)
			}
			pause = lockPatience/2 + rand.N(lockPatience)
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// isConflict reports whether a statement may succeed if it is tried again. PostgreSQL's IF NOT EXISTS fails if another
// session creates the same at the same time.
func isConflict(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() == "23505" {
		return strings.Contains(err.Error(), "pg_")
	}
	text := err.Error()
	return sqldb.IsTransient(err) || strings.Contains(text, "tuple concurrently") || strings.Contains(text, "Error 1317")
}

// briefly runs a statement on MySQL, and interrupts it after lockPatience from another connection, because
// lock_wait_timeout is a second or more.
func briefly(ctx context.Context, db *sqldb.DB, f Flavor, t Table, statement string) (failed error) {
	s := newStatements(f, t)
	err := db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		var id int64
		var found sql.NullString
		scan := func(r *sql.Rows) error { return r.Scan(&id, &found) }
		// One at a time, so that others do not wait for several. The lock ends with the connection.
		if err := s.one(ctx, conn, "SELECT GET_LOCK("+f.text(s.names.lock+"_install")+", 2)"); err != nil {
			return err
		}
		if err := conn.Query(ctx, scan, "SELECT CONNECTION_ID(), "+s.found()); err != nil {
			return err
		}
		if found.Valid == strings.HasPrefix(statement, "CREATE") {
			return errUsed // even to find that out, the statement would lock the table
		}
		if err := conn.ExecRaw(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil { // in case the interrupt fails
			return err
		}
		killing, done := context.WithCancel(ctx)
		killed := make(chan struct{})
		timer := time.AfterFunc(lockPatience, func() {
			_ = db.ExecRaw(killing, "KILL QUERY "+strconv.FormatInt(id, 10))
			close(killed)
		})
		failed = conn.ExecRaw(ctx, statement)
		done()
		if !timer.Stop() {
			<-killed // before the connection is closed, and its id belongs to another
		}
		return errUsed
	})
	if !errors.Is(err, errUsed) {
		return err
	}
	return failed
}

// errUsed closes the connection, because it has a lock and settings, and the interrupt may reach its next statement.
var errUsed = errors.New("the connection must not be used again")
