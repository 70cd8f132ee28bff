package testkit

import (
	"fmt"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Mock returns a handle on a mock of a database, which compares the full text of statements with the expected text.
// The test fails if an expected statement is not sent.
func Mock(tb testing.TB, dial func(gorm.ConnPool) gorm.Dialector) (*gorm.DB, sqlmock.Sqlmock) {
	tb.Helper()
	pool, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	Must(tb, err)
	db, err := gorm.Open(dial(pool), &gorm.Config{Logger: logger.Discard})
	Must(tb, err)
	tb.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			tb.Error(err)
		}
		_ = pool.Close()
	})
	return db, mock
}

// OnMySQL returns MySQL's dialector on a mock.
func OnMySQL(pool gorm.ConnPool) gorm.Dialector {
	return mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
}

// OnPostgres returns PostgreSQL's dialector on a mock.
func OnPostgres(pool gorm.ConnPool) gorm.Dialector {
	return postgres.New(postgres.Config{Conn: pool})
}

// SQLState imitates an error of PostgreSQL's driver with a code.
type SQLState string

func (s SQLState) Error() string { return "ERROR (SQLSTATE " + string(s) + ")" }

func (s SQLState) SQLState() string { return string(s) }

// SQLiteCode imitates an error of SQLite's driver with a code.
type SQLiteCode int

func (c SQLiteCode) Error() string { return fmt.Sprint("constraint failed: ", int(c)) }

func (c SQLiteCode) Code() int { return int(c) }
