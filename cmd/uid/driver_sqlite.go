//go:build !no_sqlite

package main

import (
	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

// openSQLite returns the dialector of a URI.
func openSQLite(dsn string) (gorm.Dialector, error) { return sqlite.Open(dsn), nil }
