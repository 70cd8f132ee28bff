package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// A guard is the transaction that a handler of an application gets. A server may end the transaction early, such as
// after a deadlock. Later statements would then be outside of it, so the guard refuses them. It also refuses
// statements that end the transaction, because only the result of the handler decides whether to commit.
//
// The guard need not recognize every error that ends the transaction:
//
//   - On MySQL and MariaDB autocommit is off ([cursorRow.limit]), so later statements are rolled back.
//   - On PostgreSQL the server refuses all statements after an error.
//   - On SQLite the guard asks before each statement whether the transaction has ended.
type guard struct {
	db         *gorm.DB
	tx         *sql.Tx
	statements gorm.ConnPool // tx, or tx with GORM's prepared statements
	sqlite     bool
	mysql      bool // or MariaDB

	mu     sync.Mutex
	cause  error  // why statements are refused
	misuse bool   // the handler has tried to end the transaction
	done   func() // closes the rows of the last query; nil before the first one
}

var _ gorm.Tx = (*guard)(nil)

func newGuard(tx *sql.Tx, db *gorm.DB) *guard {
	g := &guard{db: db, tx: tx, statements: tx, sqlite: db.Dialector.Name() == "sqlite", mysql: db.Dialector.Name() == "mysql"}
	if root, prepares := db.Config.ConnPool.(*gorm.PreparedStmtDB); prepares {
		g.statements = &gorm.PreparedStmtTX{Tx: tx, PreparedStmtDB: root}
	}
	return g
}

// session returns the handle for the handler, without the conditions of the application's handle.
func (g *guard) session(ctx context.Context) *gorm.DB {
	tx := g.db.Session(&gorm.Session{NewDB: true, Context: ctx})
	tx.Statement.ConnPool = g
	return tx
}

// broken returns why the transaction must be rolled back, or nil, and whether the handler is to blame.
func (g *guard) broken() (err error, misuse bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause, g.misuse
}

// refuse returns an error if a statement must not be sent. From StmtContext query is "": it was checked before.
func (g *guard) refuse(query string) error {
	if ends.MatchString(query) || g.mysql && commits.MatchString(query) && !stays.MatchString(query) {
		return g.misused(fmt.Sprintf("end its transaction by %.20q", strings.TrimSpace(query)))
	}
	if g.sqlite && !g.lives() {
		g.remember(errors.New("an earlier statement has ended it"))
	}
	err, _ := g.broken()
	if err != nil {
		err = fmt.Errorf("uidplugin: follow: this transaction will be rolled back, so it refuses further statements;"+
			" return the first error: %w", err)
	}
	return err
}

// The pattern "ends" matches statements that end a transaction. The pattern "commits" matches those before which
// MySQL and MariaDB commit, unless "stays" matches, too. No pattern sees the statements of a procedure; see
// [savepoint].
var (
	ends = beginning(`(COMMIT|END|ABORT|(START|PREPARE)\s+TRANSACTION)\b|` +
		`BEGIN\s*($|[^N\s\w])|BEGIN\s+[^N\s]|` + // not BEGIN NOT ATOMIC
		`ROLLBACK(\s+(WORK|TRANSACTION))?\s*($|[;/#-]|(AND|NO|PREPARED|RELEASE)\b)`) // not ROLLBACK TO
	commits = beginning(`(ALTER|CREATE|DROP|FLUSH|GRANT|LOCK|OPTIMIZE|RENAME|REPAIR|REVOKE|TRUNCATE)\s|` +
		`ANALYZE\s+(\w+\s+)?TABLES?\b|SET\s+((SESSION|LOCAL)\s+|@@((SESSION|LOCAL)\.)?)?AUTOCOMMIT\b`)
	stays = beginning(`(CREATE(\s+OR\s+REPLACE)?|DROP)\s+TEMPORARY\s+TABLES?\b|DROP\s+PREPARE\s`)
)

// beginning returns a pattern for statements that begin with one of the words, after spaces and comments.
func beginning(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?is)^(\s|;|(--|#)[^\n]*\n|/\*([^*]|\*+[^*/])*\*+/)*(` + words + `)`)
}

// observe remembers an error after which the transaction may have ended.
func (g *guard) observe(err error) {
	if err != nil && !errors.Is(err, sql.ErrNoRows) && (g.sqlite && !g.lives() || !g.sqlite && endsTransaction(err)) {
		g.remember(err)
	}
}

func (g *guard) remember(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		g.cause = err
	}
}

// lives reports whether the transaction on SQLite is still there. SQLite ends it after some errors, such as a full
// disk. BEGIN fails within a transaction.
func (g *guard) lives() bool {
	if _, err := g.tx.ExecContext(context.Background(), "BEGIN"); err != nil {
		return strings.Contains(err.Error(), "within a transaction")
	}
	_, _ = g.tx.ExecContext(context.Background(), "ROLLBACK")
	return false
}

// endsTransaction reports whether a server may have ended the transaction with this error. A lock timeout of
// PostgreSQL (55P03) does not end it: the handler may go on after ROLLBACK TO a savepoint.
func endsTransaction(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() == "55P03" {
		return false
	}
	return sqldb.IsTransient(err) || isBroken(err)
}

// isBroken reports whether the connection is broken, or the server has ended it. It reports false if the session
// was idle for too long (25P03), because the handler is to blame for that.
func isBroken(err error) bool {
	var state interface{ SQLState() string } // PostgreSQL
	if errors.As(err, &state) && (strings.HasPrefix(state.SQLState(), "08") || strings.HasPrefix(state.SQLState(), "57P")) {
		return true
	}
	return sqldb.IsUnreachable(err) || strings.Contains(err.Error(), "invalid connection") // not wrapped by MySQL's driver
}

// pool returns the pool that executes a statement. Statements about savepoints cannot be prepared.
func (g *guard) pool(query string) gorm.ConnPool {
	for _, word := range []string{"SAVEPOINT", "ROLLBACK", "RELEASE"} {
		if strings.HasPrefix(query, word) {
			return g.tx
		}
	}
	return g.statements
}

func (g *guard) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := g.refuse(query); err != nil {
		return nil, err
	}
	back := strings.HasPrefix(query, "ROLLBACK")
	if back && !g.sqlite { // sent after an error in a nested transaction, whose function may have left rows open
		g.closeRows()
	}
	result, err := g.pool(query).ExecContext(ctx, query, args...)
	// GORM hides an error of ROLLBACK TO, so COMMIT would keep what should be undone. PostgreSQL, whose errors have
	// a state, prevents this: it refuses all statements until the handler rolls back to an outer savepoint.
	var state interface{ SQLState() string }
	if g.observe(err); err != nil && back && !errors.As(err, &state) {
		g.remember(err)
	}
	return result, err
}

func (g *guard) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := g.refuse(query); err != nil {
		return nil, err
	}
	rows, err := g.pool(query).QueryContext(ctx, query, args...)
	if g.observe(err); err == nil {
		g.opened(rows.Close)
	}
	return rows, err
}

// opened keeps only the last query, because the driver of a server refuses other queries while rows are open.
func (g *guard) opened(done func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = func() { _ = done() }
}

// closeRows closes the rows that the handler may have left open, because a busy connection cannot release the
// savepoint. Package sql does not show the rows of statements that the handler has prepared, so these stay open.
func (g *guard) closeRows() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done != nil {
		g.done()
	}
}

// QueryRowContext does not use GORM's prepared statements. If one of these cannot be prepared, GORM hides the
// error, and Scan panics.
func (g *guard) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if g.refuse(query) != nil {
		return g.tx.QueryRowContext(ended, query, args...)
	}
	row := g.tx.QueryRowContext(ctx, query, args...)
	if g.observe(row.Err()); row.Err() == nil {
		g.opened(func() error { return row.Scan() }) // Scan closes the row, also if the handler has not called it
	}
	return row
}

// ended is a context that has ended. With it, database/sql puts an error into the row or the statement that it
// returns. The guard uses it to refuse a statement in methods that return no error.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (g *guard) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := g.refuse(query); err != nil {
		return nil, err
	}
	stmt, err := g.tx.PrepareContext(ctx, query)
	g.observe(err)
	return stmt, err
}

// StmtContext is for a session of the handler with PrepareStmt. The guard does not see the errors of the statement.
func (g *guard) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	if g.refuse("") != nil {
		ctx = ended
	}
	return g.tx.StmtContext(ctx, stmt)
}

// GetDBConn returns the pool, as GORM does for any transaction.
func (g *guard) GetDBConn() (*sql.DB, error) { return g.db.DB() }

func (g *guard) Commit() error   { return g.misused("commit its transaction") }
func (g *guard) Rollback() error { return g.misused("roll back its transaction") }

func (g *guard) misused(action string) error {
	err := fmt.Errorf("uidplugin: follow: a handler must not %s: return nil to commit, or an error to roll back", action)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		g.cause, g.misuse = err, true
	}
	return err
}
