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

// Mock returns a handle on a mock with a dialect, which expects each statement in full. The test fails if it expects
// any that is not sent.
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
		mock.ExpectClose()
		_ = pool.Close()
	})
	return db, mock
}

// OnMySQL returns the dialector of MySQL on a mock.
func OnMySQL(pool gorm.ConnPool) gorm.Dialector {
	return mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
}

// OnPostgres returns the dialector of PostgreSQL on a mock.
func OnPostgres(pool gorm.ConnPool) gorm.Dialector {
	return postgres.New(postgres.Config{Conn: pool})
}

// SQLState is an error of PostgreSQL's driver, with its code.
type SQLState string

// Error implements error.
func (s SQLState) Error() string { return "ERROR (SQLSTATE " + string(s) + ")" }

// SQLState returns the code.
func (s SQLState) SQLState() string { return string(s) }

// SQLiteCode is an error of SQLite's driver, with its code.
type SQLiteCode int

// Error implements error.
func (c SQLiteCode) Error() string { return fmt.Sprint("constraint failed: ", int(c)) }

// Code returns the code.
func (c SQLiteCode) Code() int { return int(c) }
