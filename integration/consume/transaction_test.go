package consume_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// servers are the engines with several writers.
var servers = []string{"mariadb", "mysql", "postgres"}

// A handler may swallow a deadlock, by itself or with a nested transaction as a try. The server has then rolled the
// cursor back on MySQL and MariaDB, and would commit each later effect by itself. GORM's reads get the error with the
// rows, so the pool does not see it.
func TestConsume_ASwallowedDeadlockRollsEverythingBack(t *testing.T) {
	t.Parallel()
	swallow := map[string]func(tx *gorm.DB, deadlock func(tx *gorm.DB) error){
		"by itself": func(tx *gorm.DB, deadlock func(tx *gorm.DB) error) { _ = deadlock(tx) },
		"nested": func(tx *gorm.DB, deadlock func(tx *gorm.DB) error) {
			_ = tx.Transaction(func(tx *gorm.DB) error { return deadlock(tx) })
		},
		"prepared": func(tx *gorm.DB, deadlock func(tx *gorm.DB) error) {
			_ = deadlock(tx.Session(&gorm.Session{PrepareStmt: true}))
		},
	}
	second := map[string]func(tx *gorm.DB, town string) error{
		"update": func(tx *gorm.DB, town string) error {
			return tx.Exec("UPDATE totals SET n = n + 1 WHERE consumer = ?", town).Error
		},
		"read": func(tx *gorm.DB, town string) error {
			var all []total
			return tx.Clauses(clause.Locking{Strength: "UPDATE"}).Find(&all, "consumer = ?", town).Error
		},
	}
	for how, try := range swallow {
		for what, lock := range second {
			t.Run(how+", "+what, func(t *testing.T) {
				t.Parallel()
				testkit.Each(t, func(t *testing.T, d *testkit.Database) {
					db := shop(t, d, nil)
					testkit.Must(t, db.Create(&[]total{{Consumer: "a"}, {Consumer: "b"}}).Error)
					place(t, db, 3, "Ulm")
					var calls atomic.Int64
					handle := func(tx *gorm.DB, o *order) error {
						if err := tx.Create(&effect{Consumer: "mails", OrderID: int64(o.ID)}).Error; err != nil {
							return err
						}
						if calls.Add(1) == 2 {
							var other sync.WaitGroup
							try(tx, func(tx *gorm.DB) error {
								if err := lock(tx, "a"); err != nil {
									return err
								}
								locked := make(chan bool)
								other.Go(func() {
									_ = db.Transaction(func(tx *gorm.DB) error {
										// The database prefers to end the transaction with fewer changes.
										testkit.Must(t, tx.Exec("UPDATE totals SET n = n + 1 WHERE consumer = 'b'").Error)
										testkit.Must(t, tx.Create(&[]effect{{Note: "x"}, {Note: "x"}, {Note: "x"}, {Note: "x"}, {Note: "x"}}).Error)
										close(locked)
										return tx.Exec("UPDATE totals SET n = n + 1 WHERE consumer = 'a'").Error
									})
								})
								<-locked
								return lock(tx, "b")
							})
							defer other.Wait()
						}
						sum := total{Consumer: "mails"} // another effect
						_ = tx.FirstOrCreate(&sum, sum)
						_ = tx.Exec("UPDATE totals SET n = n + 1 WHERE consumer = 'mails'")
						return nil
					}
					r := start(t, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", handle) })
					finished(t, db, "mails")
					r.stop(t)
				}, servers...)
			})
		}
	}
}

// What a handler does in its transaction besides writing.
func TestConsume_TheTransactionOfAHandler(t *testing.T) {
	t.Parallel()
	insert := func(tx *gorm.DB, o *order) error { return write("mails")(tx, o) }
	for name, handle := range map[string]func(tx *gorm.DB, o *order) error{
		"nested": func(tx *gorm.DB, o *order) error {
			testkitFails := errors.New("roll back to the savepoint")
			err := tx.Transaction(func(tx *gorm.DB) error {
				if err := insert(tx, o); err != nil {
					return err
				}
				return testkitFails
			})
			if err != testkitFails {
				return fmt.Errorf("nested: %w", err)
			}
			return tx.Transaction(func(tx *gorm.DB) error { return insert(tx, o) })
		},
		"an error in a nested one": func(tx *gorm.DB, o *order) error {
			err := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&order{ID: o.ID}).Error })
			if err == nil {
				return errors.New("two orders with one id")
			}
			return insert(tx, o)
		},
		"a failed savepoint in a nested one": func(tx *gorm.DB, o *order) error {
			err := tx.Transaction(func(tx *gorm.DB) error {
				_ = tx.Create(&order{ID: o.ID}).Error // PostgreSQL then refuses the inner savepoint
				return tx.Transaction(func(tx *gorm.DB) error { return errors.Join(insert(tx, o), errors.New("roll back")) })
			})
			if err == nil {
				return errors.New("the nested transaction was not rolled back")
			}
			return insert(tx, o)
		},
		"a session": func(tx *gorm.DB, o *order) error {
			return insert(tx.Session(&gorm.Session{NewDB: true, PrepareStmt: true}), o)
		},
		"rows": func(tx *gorm.DB, o *order) error {
			rows, err := tx.Model(&order{}).Rows()
			if err != nil {
				return err
			}
			if err := rows.Close(); err != nil {
				return err
			}
			var n int64
			if err := tx.Raw("SELECT COUNT(*) FROM orders").Row().Scan(&n); err != nil || n == 0 {
				return fmt.Errorf("%d orders, %w", n, err)
			}
			return insert(tx, o)
		},
		"rows left open": func(tx *gorm.DB, o *order) error {
			if err := insert(tx, o); err != nil {
				return err
			}
			rows, err := tx.Model(&order{}).Rows()
			if err == nil && !rows.Next() {
				err = rows.Err()
			}
			return err
		},
		"rows left open in a nested one that fails": func(tx *gorm.DB, o *order) error {
			if err := insert(tx, o); err != nil {
				return err
			}
			failed := tx.Transaction(func(tx *gorm.DB) error {
				if err := tx.Create(&effect{Consumer: "mails", OrderID: -1}).Error; err != nil {
					return err
				}
				if rows, err := tx.Model(&order{}).Rows(); err == nil && rows.Next() {
					return io.EOF
				}
				return errors.New("no rows")
			})
			if failed != io.EOF {
				return failed
			}
			return nil
		},
		"a row left open": func(tx *gorm.DB, o *order) error {
			if err := insert(tx, o); err != nil {
				return err
			}
			return tx.Raw("SELECT id FROM orders").Row().Err()
		},
	} {
		for _, prepares := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, PrepareStmt: %t", name, prepares), func(t *testing.T) {
				t.Parallel()
				testkit.Each(t, func(t *testing.T, d *testkit.Database) {
					db := shop(t, d, &gorm.Config{PrepareStmt: prepares})
					place(t, db, 3, "Ulm")
					var wrong atomic.Value
					r := start(t, func(ctx context.Context) error {
						return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
							err := handle(tx, o)
							if err != nil {
								wrong.Store(err.Error())
							}
							return err
						})
					})
					finished(t, db, "mails")
					r.stop(t)
					if wrong.Load() != nil {
						t.Error(wrong.Load())
					}
				})
			})
		}
	}
}

// SQLite can read rows while other statements run, so a nested transaction that fails does not close them.
func TestConsume_ANestedTransactionOnSQLiteKeepsTheRowsOutsideOpen(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 5, "Ulm")
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
				rows, err := tx.Model(&order{}).Rows()
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				n := 0
				for ; rows.Next(); n++ {
					_ = tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&order{ID: o.ID}).Error })
				}
				if n != 5 {
					t.Errorf("%d rows instead of 5", n)
				}
				return write("mails")(tx, o)
			})
		})
		finished(t, db, "mails")
		r.stop(t)
	}, "sqlite")
}

// With PrepareStmt, GORM returns a row without error if it cannot prepare the statement, and Scan of that row panics.
func TestConsume_AStatementOfARowThatCannotBePreparedIsAnError(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, &gorm.Config{PrepareStmt: true})
		place(t, db, 1, "Ulm")
		var calls atomic.Int64
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
				if calls.Add(1) == 1 {
					err := tx.Raw("SELECT n FROM missing").Row().Err()
					testkit.IsError(t, err, nil, "missing") // instead of "current transaction is aborted" on PostgreSQL
					return err
				}
				return write("mails")(tx, o)
			})
		})
		finished(t, db, "mails")
		r.stop(t)
		if calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// On PostgreSQL, GORM hides that it could not set the savepoint of a nested transaction. The savepoint to which it then
// cannot roll back is not the reason why the handler fails.
func TestConsume_ANestedTransactionWithoutSavepointHidesNoError(t *testing.T) {
	t.Parallel()
	nested := func(tx *gorm.DB) error {
		return tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&effect{Consumer: "mails"}).Error })
	}
	for want, handle := range map[string]func(tx *gorm.DB, o *order) error{
		"current transaction is aborted": func(tx *gorm.DB, o *order) error {
			_ = tx.Create(&order{ID: o.ID})
			_ = nested(tx)
			return nil
		},
		"duplicate key": func(tx *gorm.DB, o *order) error {
			err := tx.Create(&order{ID: o.ID}).Error
			_ = nested(tx)
			return err
		},
		"the printer is out of paper": func(tx *gorm.DB, _ *order) error {
			_ = tx.Raw("SELECT id FROM orders").Row()
			return fmt.Errorf("the printer is out of paper, and %v", nested(tx))
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db := shop(t, d, nil)
				place(t, db, 1, "Ulm")
				r := start(t, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", handle) })
				failsWith(t, db, want)
				r.stop(t)
				if got := effects(t, db, "mails"); len(got) > 0 {
					t.Errorf("effects of %v", got)
				}
			}, "postgres")
		})
	}
}

// A handler that ends its transaction has failed, and its effects are rolled back unless it has committed them itself.
func TestConsume_AHandlerMustNotEndItsTransaction(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(tx *gorm.DB) error{
		"commits":    func(tx *gorm.DB) error { return tx.Commit().Error },
		"rolls back": func(tx *gorm.DB) error { return tx.Rollback().Error },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db := shop(t, d, nil)
				place(t, db, 1, "Ulm")
				var calls atomic.Int64
				r := start(t, func(ctx context.Context) error {
					return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
						if err := write("mails")(tx, o); err != nil {
							return err
						}
						if calls.Add(1) == 1 {
							if err := end(tx); err == nil || !strings.Contains(err.Error(), "a handler must not") {
								t.Error(err)
							}
						}
						return nil
					})
				})
				finished(t, db, "mails")
				r.stop(t)
				if calls.Load() != 2 {
					t.Errorf("%d calls", calls.Load())
				}
			})
		})
	}
}

// A statement that ends the transaction would commit the cursor without the effects after it, or commit these one by
// one, so it is refused. Some of them only do so on MySQL and MariaDB.
func TestConsume_RefusesStatementsThatEndTheTransaction(t *testing.T) {
	t.Parallel()
	engines := map[bool][]string{true: {"mariadb", "mysql"}} // nil means all
	for statement, onlyMySQL := range map[string]bool{
		"COMMIT": false, " commit and chain;": false, "/* a */ -- b\n ROLLBACK": false, "ROLLBACK AND CHAIN": false, "rollback work": false,
		"BEGIN": false, "START  TRANSACTION": false, "END": false, "ABORT": false, "PREPARE TRANSACTION 'a'": false,
		"CREATE TABLE other (n int)": true, "TRUNCATE TABLE spare": true, "DROP TABLE spare": true, "ALTER TABLE spare ADD m int": true,
		"CREATE INDEX spare_n ON spare (n)": true, "RENAME TABLE spare TO other": true, "LOCK TABLES effects WRITE": true,
		"ANALYZE TABLE effects": true, "SET autocommit = 1": true,
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db := shop(t, d, nil)
				testkit.Must(t, db.Exec("CREATE TABLE spare (n int)").Error)
				place(t, db, 2, "Ulm")
				var calls atomic.Int64
				r := start(t, func(ctx context.Context) error {
					return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
						if calls.Add(1) == 1 {
							testkit.IsError(t, tx.Exec(statement).Error, nil, "a handler must not end its transaction")
						}
						_ = write("mails")(tx, o) // the handler does not look
						return nil
					})
				})
				finished(t, db, "mails")
				r.stop(t)
				if calls.Load() != 3 {
					t.Errorf("%d calls", calls.Load())
				}
			}, engines[onlyMySQL]...)
		})
	}
}

// These statements look like ones that end a transaction.
func TestConsume_AHandlerUsesSavepointsAndTemporaryTables(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 2, "Ulm")
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
				for _, statement := range []string{"SAVEPOINT a", "CREATE TEMPORARY TABLE spare (n int)", "INSERT INTO spare VALUES (1)",
					"ROLLBACK TO SAVEPOINT a", "RELEASE SAVEPOINT a", "DROP TABLE IF EXISTS spare"} {
					if statement = strings.Replace(statement, "DROP", map[bool]string{true: "DROP TEMPORARY", false: "DROP"}[d.IsMySQL()], 1); tx.Exec(statement).Error != nil {
						t.Errorf("%s: %v", statement, tx.Error)
					}
				}
				return write("mails")(tx, o)
			})
		})
		finished(t, db, "mails")
		r.stop(t)
	})
}

// Not each statement that commits is recognized. The effects before it then stand with the cursor, so the row does not
// come again, and the failure is counted.
func TestConsume_FindsAStatementThatCommits(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		statement := "UPDATE totals SET n = n; COMMIT"
		if d.IsMySQL() {
			statement = "CALL commits()"
			testkit.Must(t, db.Exec("CREATE PROCEDURE commits() COMMIT").Error)
		}
		place(t, db, 2, "Ulm")
		var failed int64
		first := true
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
				err := write("mails")(tx, o)
				if err == nil && first {
					first = false
					_ = tx.Exec(statement)
				} else if !first {
					failed = follow.Stats(db)[0].Consumers[0].Failed
				}
				return err
			})
		})
		finished(t, db, "mails")
		r.stop(t)
		if failed != 1 {
			t.Errorf("%d failures", failed)
		}
	}, "mariadb", "mysql", "sqlite") // PostgreSQL has none
}

// ErrTooLate and conflicts are no fault of the row: it comes again at once.
func TestConsume_RefusedRowsInAHandler(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		placed := place(t, db, 2, "Ulm")
		var calls atomic.Int64
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, o *order) error {
				if err := write("mails")(tx, o); err != nil || calls.Add(1) > 1 {
					return err
				}
				return tx.Create(&order{ID: placed[0].ID - uidplugin.ID(1), Town: "late"}).Error
			})
		})
		finished(t, db, "mails")
		r.stop(t)
		if s := calls.Load(); s != 3 {
			t.Errorf("%d calls", s)
		}
	})
}

// A row violates a deferred constraint, so COMMIT fails. The rows before it take effect, and it comes again after a
// pause, as after an error of the handler.
func TestConsume_ARowFailsAtCommit(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		testkit.Must(t, db.Exec("ALTER TABLE effects ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED").Error)
		place(t, db, 1, "Ulm")
		place(t, db, 1, "Bonn")
		twice := place(t, db, 1, "Ulm")
		place(t, db, 1, "Jena")
		r := start(t, func(ctx context.Context) error {
			return follow.ConsumeBatch(ctx, db, "mails", 10, writeAll("mails"))
		})
		eventually(t, "the row fails", func() bool {
			s := follow.Stats(db)
			return len(s) > 0 && len(s[0].Consumers) > 0 && s[0].Consumers[0].Stuck == twice[0].ID
		})
		if n := len(effects(t, db, "mails")); n != 2 {
			t.Errorf("%d effects", n)
		}
		testkit.Must(t, db.Exec("ALTER TABLE effects DROP CONSTRAINT effects_note_key").Error)
		finished(t, db, "mails")
		r.stop(t)
	}, "postgres")
}

// ending ends the context of its consumer while its row is read.
type ending order

func (ending) TableName() string { return "orders" }

func (*ending) AfterFind(tx *gorm.DB) error {
	if end, ok := tx.Statement.Context.Value(ending{}).(*context.CancelFunc); ok {
		(*end)()
	}
	return nil
}

// A fetch limits how long its connection may be idle. The connection goes back to the pool of the application, where
// the server would close it.
func TestConsume_AFetchThatEndsKeepsNoLimit(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		place(t, db, 1, "Ulm")
		before, after := "", ""
		limits := "SELECT CONCAT_WS(' ', @@SESSION.wait_timeout, @@SESSION.net_write_timeout)"
		testkit.Must(t, db.Raw(limits).Scan(&before).Error)
		var cancel context.CancelFunc
		ctx := context.WithValue(t.Context(), ending{}, &cancel)
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		err = follow.Consume(ctx, db, "mails", func(*gorm.DB, *ending) error { return nil })
		testkit.IsError(t, err, context.Canceled)
		testkit.Must(t, db.Raw(limits).Scan(&after).Error)
		if before != after {
			t.Errorf("wait_timeout and net_write_timeout are %s instead of %s", after, before)
		}
		testkit.Eventually(t, "all connections are given back", time.Minute, func() bool { return pool.Stats().InUse == 0 })
	}, "mariadb", "mysql")
}

// A limited is an order whose town has the limits of the connection that has read it.
type limited order

func (limited) TableName() string { return "orders" }

func (l *limited) AfterFind(tx *gorm.DB) (err error) {
	l.Town, err = limitsOf(tx)
	return err
}

// limitsOf returns how many seconds a server waits for the next statement, and for a process that takes no more rows.
func limitsOf(tx *gorm.DB) (limits string, err error) {
	query := "SELECT CONCAT_WS(' ', @@SESSION.wait_timeout, @@SESSION.net_write_timeout)"
	if tx.Name() == "postgres" {
		query = "SELECT concat_ws(' ', extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)::int," +
			" CASE WHEN version() LIKE '%linux%' THEN current_setting('tcp_user_timeout')::int / 1000 ELSE 30 END)"
	}
	err = tx.Session(&gorm.Session{NewDB: true}).Raw(query).Scan(&limits).Error
	return limits, err
}

// A transaction that has locked the cursor must end if its process stands still. While the server sends rows, it waits
// for a process that takes no more of them, and other limits count: 60 s on MySQL and MariaDB, and none on PostgreSQL.
func TestConsume_LimitsHowLongAServerWaitsForAProcessThatHasLockedTheCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 1, "Ulm")
		limits := make(chan [2]string, 1)
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, l *limited) error {
				handler, err := limitsOf(tx)
				limits <- [2]string{l.Town, handler}
				return err
			})
		})
		select {
		case got := <-limits:
			if got != [2]string{"30 30", "30 30"} {
				t.Errorf("the limits in seconds are %q when the row is read, and %q when it is handled", got[0], got[1])
			}
			r.stop(t)
		case err := <-r.ended:
			t.Errorf("the consumer has ended with: %v", err)
		}
	}, servers...)
}
