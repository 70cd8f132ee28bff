//go:build !no_postgres

package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// openPostgres returns the dialector of a URL, or of keywords and values. Times are in UTC, unless the data source name
// says otherwise.
func openPostgres(dsn string) (gorm.Dialector, error) {
	if _, err := url.Parse(dsn); err != nil && strings.HasPrefix(dsn, "postgres://") {
		return nil, errURL
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("the data source name of PostgreSQL cannot be read: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	for name, value := range map[string]string{"timezone": "UTC", "application_name": "uid"} {
		if config.RuntimeParams[name] == "" && !(name == "timezone" && config.RuntimeParams["TimeZone"] != "") {
			config.RuntimeParams[name] = value
		}
	}
	return postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), nil
}
