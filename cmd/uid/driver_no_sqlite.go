//go:build no_sqlite

package main

import "gorm.io/gorm"

func openSQLite(string) (gorm.Dialector, error) { return nil, errLeftOut("no_sqlite") }
