//go:build no_mysql

package main

import (
	"context"
	"time"

	"gorm.io/gorm"
)

func openMySQL(context.Context, string, time.Duration) (gorm.Dialector, error) {
	return nil, errLeftOut("no_mysql")
}
