//go:build no_postgres

package main

import (
	"context"
	"time"

	"gorm.io/gorm"
)

func openPostgres(context.Context, string, time.Duration) (gorm.Dialector, error) {
	return nil, errLeftOut("no_postgres")
}
