package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// quotedDSN matches the data source name at the start of the driver's parse errors. The name must not be shown,
// because the driver does not hide a password with an escaped space.
var quotedDSN = regexp.MustCompile("(?s)^cannot parse `.*`: ")

// openPostgres returns the dialector of a URL, or of keywords and values. Times are in UTC unless dsn sets a zone.
func openPostgres(ctx context.Context, dsn string, timeout time.Duration) (gorm.Dialector, error) {
	if strings.HasPrefix(dsn, "postgres://") {
		if _, err := parseURL(dsn); err != nil {
			return nil, err
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the data source name of PostgreSQL cannot be read: " +
			quotedDSN.ReplaceAllString(err.Error(), ""))
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = maxConnect
	}
	for name, value := range map[string]string{"timezone": "UTC", "application_name": "uid"} {
		if config.RuntimeParams[name] == "" && !(name == "timezone" && config.RuntimeParams["TimeZone"] != "") {
			config.RuntimeParams[name] = value
		}
	}
	pool := stdlib.OpenDB(*config)
	// The driver's timeout is for each host, and dsn may name several, so the limit for all of them may be longer.
	return postgres.New(postgres.Config{Conn: pool}), reach(ctx, pool, timeout)
}
