//go:build no_postgres

package main

import "gorm.io/gorm"

func openPostgres(string) (gorm.Dialector, error) { return nil, errLeftOut("no_postgres") }
