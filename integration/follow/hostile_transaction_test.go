package follow_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A transaction is a transaction of a writer, on one connection.
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

// savepoint inserts after a savepoint. It rolls back to the savepoint half of the time, and always after a row was
// refused.
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

// A batch of many rows is so long that the closer changes the gates meanwhile. Such batches are rare, because otherwise
// nearly all rows would be theirs.
const (
	manyRows       = 1000
	manyStatements = 15
)

// insert sends one statement.
func (x *transaction) insert() error {
	batch, old := make([]event, 1), age()
	x.statements++
	switch {
	case x.statements%(10*manyStatements) == manyStatements:
		batch, old = make([]event, manyRows), rand.N(100*time.Millisecond)
	case rand.IntN(8) == 0:
		batch = make([]event, 20)
	}
	for i := range batch {
		batch[i] = event{x.id(old), x.number, len(x.ids) + i}
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
	if len(batch) == manyRows {
		x.note("batches of many rows", 1)
	}
	for _, e := range batch {
		x.ids = append(x.ids, e.ID)
	}
	return nil
}

// again inserts a row that exists. Such an INSERT is never refused as too late.
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
	forms := []string{"INSERT INTO events (id, writer, n) VALUES (?, ?, ?)",
		"INSERT INTO events (id, writer, n) SELECT ?, ?, ?"}
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
