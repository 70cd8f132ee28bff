package follow_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A hostileWriter writes in transactions of all kinds.
type hostileWriter struct {
	hostileTask
	db     *gorm.DB
	number int
	reports
	layout generator.Layout
	floor  int64   // smallest id that was not refused, for a clock that is behind
	mine   []int64 // rows that were committed for sure
}

// reports are how a writer reports to the test.
type reports struct {
	note func(what string, n int)
	open func(writer int, open bool) // its transaction has inserted a row
	took func(time.Duration)         // an INSERT
}

func (t hostileTask) writer(db *gorm.DB, number int, r reports) *hostileWriter {
	return &hostileWriter{hostileTask: t, db: db, number: number, reports: r, layout: generator.DefaultLayout()}
}

func (w *hostileWriter) write(ctx context.Context) {
	for ctx.Err() == nil {
		x := w.transaction()
		err := w.db.Connection(func(c *gorm.DB) error {
			x.c = c.Session(&gorm.Session{})
			return x.run()
		})
		switch {
		case err == nil:
			w.note("committed", 1)
			w.note("rows", len(x.ids))
			if !x.forgetful {
				w.mine = append(w.mine, x.ids...)[max(0, len(w.mine)+len(x.ids)-1000):]
			}
		case errors.Is(err, errBack):
			w.note("rolled back", 1)
		case isTooLate(err):
			w.refused(err)
		case sqldb.IsTransient(err), duplicate.MatchString(err.Error()):
			w.note("conflict", 1)
		case unreachable.MatchString(err.Error()):
			w.note("unreachable", 1)
			x.resolve()
		default:
			w.note(fmt.Sprintf("error: writer %d: %v", w.number, err), 1)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

func isTooLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "uid_follow: too late")
}

var (
	errBack     = errors.New("roll back")
	duplicate   = regexp.MustCompile(`Duplicate entry|duplicate key|UNIQUE constraint|XAER_DUPID|is already in use`)
	unreachable = regexp.MustCompile(`bad connection|invalid connection|connection refused|connection reset|broken pipe|EOF|` +
		`closed|SQLSTATE (57P0|08)|Error (1053|1317|2013)|unexpected packet|busy buffer|commands out of sync|failed to connect|` +
		`no answer within|deadline exceeded|timeout: context already done|testkit: the connection was lost|Error 1399|Error 1402|XAER_NOTA|prepared transaction with identifier`)
	markInError = regexp.MustCompile(`is below (\d+)`)
)

// refused sets the floor to the mark, mostly, as the generator of a process whose clock is behind would.
func (w *hostileWriter) refused(err error) {
	w.note("refused", 1)
	if w.Behind > 0 {
		w.note("refused behind", 1)
		if m := markInError.FindStringSubmatch(err.Error()); m != nil && rand.IntN(4) > 0 {
			mark, _ := strconv.ParseInt(m[1], 10, 64)
			w.floor = mark + rand.Int64N(2) // a row with the id of the mark is not refused
		}
	}
}

var serial atomic.Int64

// age returns a random age of ids: up to 1.8 s, or up to 0.2 s in the future.
func age() time.Duration {
	return time.Duration(rand.Float64()*rand.Float64()*float64(2*time.Second)) - 200*time.Millisecond
}

// id returns a new id that is about as old.
func (w *hostileWriter) id(age time.Duration) int64 {
	id := w.idOf(w.Behind + age + rand.N(10*time.Millisecond))
	if id < w.floor {
		id, w.floor = w.floor, w.floor+1
	}
	return id
}

func (w *hostileWriter) idOf(age time.Duration) int64 {
	id, err := w.layout.Compose(generator.Parts{Time: time.Now().Add(-age),
		WorkerID: (serial.Add(1)*100 + int64(os.Getpid()%100)) % w.layout.MaxWorkerID(), Sequence: rand.Int64N(16)})
	if err != nil {
		panic(err)
	}
	return id
}

// A transaction is one of a writer, on one connection.
type transaction struct {
	*hostileWriter
	c         *gorm.DB
	kind      transactionKind
	name      string // of a prepared transaction
	length    time.Duration
	hold      time.Duration // while it is prepared
	forgetful bool          // a crash of the server may lose it
	ids       []int64
}

type transactionKind int

const (
	autocommit transactionKind = iota
	plain
	prepared // PREPARE TRANSACTION, or XA
)

// transaction returns a new transaction: short, or up to 2.5 s long.
func (w *hostileWriter) transaction() *transaction {
	x := &transaction{hostileWriter: w, kind: plain, name: fmt.Sprintf("uid-%d-%d", os.Getpid(), serial.Add(1))}
	if rand.IntN(3) == 0 {
		x.length = time.Duration(rand.Float64() * rand.Float64() * float64(50*time.Millisecond))
		if rand.IntN(3) == 0 && w.Database.Name != "sqlite" { // it has one writer at a time
			x.length *= 50
		}
	}
	switch n := rand.IntN(10); {
	case n == 0:
		x.kind = autocommit
	case n <= 2 && w.Own && w.Database.Name != "sqlite":
		x.kind = prepared
		some := 16 // elsewhere it holds up the followers
		if w.Database.Name == "mariadb" {
			some = 4
		}
		if x.hold = x.length / 3; rand.IntN(some) == 0 {
			x.hold = rand.N(2500 * time.Millisecond)
		}
	}
	return x
}

// run runs the transaction. If that fails, it makes sure that the connection is not used again inside of it.
func (x *transaction) run() error {
	if err := x.begin(); err != nil {
		x.abandon()
		return err
	}
	err := x.body()
	x.open(x.number, false) // from here on it may have ended at any time
	if err == nil && x.kind != autocommit && rand.IntN(8) == 0 {
		err = errBack
	}
	if err != nil && x.kind != autocommit {
		if x.kind == prepared && x.Database.IsMySQL() || x.c.Exec("ROLLBACK").Error != nil {
			x.abandon()
		}
		return err
	}
	if err == nil && x.kind != autocommit {
		err = x.commit()
	}
	if err != nil {
		x.abandon()
	}
	return err
}

// abandon closes the connection.
func (x *transaction) abandon() {
	if conn, ok := x.c.Statement.ConnPool.(*sql.Conn); ok {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

func (x *transaction) exec(statements ...string) error {
	for _, s := range statements {
		if err := x.c.Exec(s).Error; err != nil {
			return err
		}
	}
	return nil
}

var levels = []string{"READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}

func (x *transaction) begin() error {
	level := levels[rand.IntN(len(levels))]
	if x.kind == autocommit {
		return nil
	}
	switch {
	case x.Database.Name == "sqlite":
		return x.exec([]string{"BEGIN", "BEGIN IMMEDIATE"}[rand.IntN(2)])
	case x.Database.Name == "postgres":
		begin := []string{"BEGIN ISOLATION LEVEL " + level}
		if rand.IntN(2) == 0 {
			x.forgetful = true
			begin = append(begin, "SET LOCAL synchronous_commit = off")
		}
		return x.exec(begin...)
	}
	if x.Own { // the server has a binary log
		if err := x.exec(fmt.Sprint("SET SESSION sql_log_bin = ", rand.IntN(2))); err != nil {
			return err
		}
	}
	begin := "START TRANSACTION"
	if x.kind == prepared {
		begin = "XA START '" + x.name + "'"
	}
	return x.exec("SET TRANSACTION ISOLATION LEVEL "+level, begin)
}

// commit commits the transaction, in two phases if it is of that kind.
func (x *transaction) commit() error {
	switch {
	case x.kind == plain:
		return x.exec("COMMIT")
	case x.Database.IsMySQL():
		if err := x.exec("XA END '"+x.name+"'", "XA PREPARE '"+x.name+"'"); err != nil {
			return err
		}
		x.note("prepared", 1)
		time.Sleep(x.hold)
		if rand.IntN(8) == 0 {
			return errors.Join(errBack, x.exec("XA ROLLBACK '"+x.name+"'"))
		}
		return x.exec("XA COMMIT '" + x.name + "'")
	}
	if err := x.exec("PREPARE TRANSACTION '" + x.name + "'"); err != nil {
		return err
	}
	x.note("prepared", 1)
	time.Sleep(x.hold)
	if rand.IntN(8) == 0 {
		return errors.Join(errBack, x.db.Exec("ROLLBACK PREPARED '"+x.name+"'").Error)
	}
	return x.db.Exec("COMMIT PREPARED '" + x.name + "'").Error
}

// resolve ends a prepared transaction whose connection broke. It gives up if there is none, or if the server does not
// know yet that the connection broke.
func (x *transaction) resolve() {
	end := []string{"COMMIT PREPARED '", "ROLLBACK PREPARED '"}
	if x.Database.IsMySQL() {
		end = []string{"XA COMMIT '", "XA ROLLBACK '"}
	}
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		if x.kind != prepared || x.db.Exec(end[rand.IntN(2)]+x.name+"'").Error == nil {
			return
		}
	}
}

// body inserts rows, one or many with each statement.
func (x *transaction) body() error {
	if x.kind != autocommit && rand.IntN(2) == 0 {
		if err := x.snapshot(); err != nil {
			return err
		}
	}
	statements := 1 + rand.IntN(3)
	if x.kind == autocommit {
		statements = 1
	}
	for range statements {
		var err error
		if x.kind != autocommit && rand.IntN(5) == 0 {
			err = x.savepoint()
		} else {
			err = x.insert()
		}
		if err != nil {
			return err
		}
		x.open(x.number, true)
		time.Sleep(x.length / 3)
	}
	return nil
}

// snapshot makes the transaction take its snapshot long before its first row. On MySQL with SERIALIZABLE the range also
// locks out all others, so it is rare.
func (x *transaction) snapshot() error {
	query, n := "SELECT COUNT(*) FROM events WHERE id = ?", 0
	if rand.IntN(50) == 0 {
		query = "SELECT COUNT(*) FROM events WHERE id > ?"
	}
	if err := x.c.Raw(query, x.idOf(time.Minute)).Scan(&n).Error; err != nil {
		return err
	}
	time.Sleep(x.length / 4)
	return nil
}

// savepoint inserts after a savepoint. It undoes half of that, and goes on after a row was refused.
func (x *transaction) savepoint() error {
	before := len(x.ids)
	if err := x.exec("SAVEPOINT s"); err != nil {
		return err
	}
	err := x.insert()
	if isTooLate(err) {
		x.note("refused and went on", 1)
		x.refused(err)
	} else if err != nil {
		return err
	}
	if err != nil || rand.IntN(2) == 0 {
		x.ids = x.ids[:before]
		x.note("back to a savepoint", 1)
		return x.exec("ROLLBACK TO SAVEPOINT s")
	}
	return x.exec("RELEASE SAVEPOINT s")
}

// insert sends one statement.
func (x *transaction) insert() error {
	batch := make([]event, 1)
	if rand.IntN(8) == 0 {
		batch = make([]event, 20)
	}
	for i, age := 0, age(); i < len(batch); i++ {
		batch[i] = event{x.id(age), x.number, len(x.ids) + i}
	}
	var err error
	begin := time.Now()
	switch n := rand.IntN(32); {
	case n == 0 && len(x.mine) > 0: // a row that is there
		return x.again()
	case n <= 4:
		err = x.c.Clauses(clause.OnConflict{UpdateAll: true}).Create(&batch).Error
	case n <= 8:
		err = x.c.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error
	case n <= 16:
		batch = batch[:1]
		err = x.raw(batch[0])
	default:
		err = x.c.Create(&batch).Error
	}
	if err != nil {
		return err
	}
	x.took(time.Since(begin))
	for _, e := range batch {
		x.ids = append(x.ids, e.ID)
	}
	return nil
}

// again inserts a row that is there. That is never too late.
func (x *transaction) again() error {
	e := event{x.mine[rand.IntN(len(x.mine))], x.number, -1}
	conflict := clause.OnConflict{UpdateAll: rand.IntN(2) == 0}
	conflict.DoNothing = !conflict.UpdateAll
	err := x.c.Clauses(conflict).Create(&e).Error
	x.note("upsert of an old row", 1)
	if isTooLate(err) {
		return fmt.Errorf("a row that is there was refused: %v", strings.ReplaceAll(err.Error(), "too late", "late"))
	}
	return err
}

// raw inserts a row with SQL of the application.
func (x *transaction) raw(e event) error {
	forms := []string{"INSERT INTO events (id, writer, n) VALUES (?, ?, ?)", "INSERT INTO events (id, writer, n) SELECT ?, ?, ?"}
	if x.Database.Name == "postgres" {
		forms[1] = "WITH e AS (INSERT INTO events (id, writer, n) VALUES (?, ?, ?) RETURNING id) SELECT count(*) FROM e"
	} else {
		forms = append(forms, "REPLACE INTO events (id, writer, n) VALUES (?, ?, ?)")
	}
	if x.Database.IsMySQL() {
		forms = append(forms, "INSERT IGNORE INTO events (id, writer, n) VALUES (?, ?, ?)")
	}
	return x.c.Exec(forms[rand.IntN(len(forms))], e.ID, e.Writer, e.N).Error
}
