//go:build !no_postgres

package main

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// quotedDSN is how an error of the driver begins. The driver hides passwords, but not one with an escaped space.
var quotedDSN = regexp.MustCompile("(?s)^cannot parse `.*`: ")

// openPostgres returns the dialector of a URL, or of keywords and values. Times are in UTC, unless the data source name
// says otherwise.
func openPostgres(dsn string) (gorm.Dialector, error) {
	if strings.HasPrefix(dsn, "postgres://") {
		if _, err := parseURL(dsn); err != nil {
			return nil, err
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the data source name of PostgreSQL cannot be read: " + quotedDSN.ReplaceAllString(err.Error(), ""))
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
