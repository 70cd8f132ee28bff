//go:build no_mysql

package main

import (
	"time"

	"gorm.io/gorm"
)

func openMySQL(string, time.Duration) (gorm.Dialector, error) { return nil, errLeftOut("no_mysql") }
