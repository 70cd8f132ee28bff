//go:build !no_mysql

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// readMargin is how much longer than a statement the driver waits for the server. Then the error is the statement's.
const readMargin = 2 * time.Second

// openMySQL returns the dialector of a URL, or of a data source name in the driver's form. Times are in UTC, unless the
// data source name says otherwise. GORM opens a connection without a context. So the driver must not wait forever for a
// server that accepts connections and is silent: it waits a little longer than timeout, which is that of a statement.
func openMySQL(dsn string, timeout time.Duration) (gorm.Dialector, error) {
	config, err := mysqlConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // errors are returned as well
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.ReadTimeout == 0 {
		config.ReadTimeout = timeout + readMargin
	}
	if config.Params["time_zone"] == "" {
		if config.Params == nil {
			config.Params = map[string]string{}
		}
		config.Params["time_zone"] = "'+00:00'"
	}
	config.ParseTime = false // rows are shown as the database writes them
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("the data source name of MySQL: %w", err)
	}
	return gormmysql.New(gormmysql.Config{Conn: sql.OpenDB(connector)}), nil
}

func mysqlConfig(dsn string) (*mysql.Config, error) {
	if !strings.HasPrefix(dsn, "mysql://") {
		config, err := mysql.ParseDSN(dsn)
		if err == nil {
			return config, nil
		}
		// The driver's reason may have a part of the password, unless it is about the parameters.
		rest, _, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
		if _, failed := mysql.ParseDSN(dsn[:strings.LastIndexByte(dsn, '/')+1] + rest); failed != nil {
			err = errors.New("it has the form user:password@tcp(host:3306)/shop")
		}
		return nil, fmt.Errorf("the data source name of MySQL cannot be read: %w", err)
	}
	u, err := parseURL(dsn)
	if err != nil {
		return nil, err
	}
	// The driver reads the parameters.
	config, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL cannot be read: %w", err)
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(or(u.Hostname(), "127.0.0.1"), "3306")
	}
	config.DBName = strings.TrimPrefix(u.Path, "/")
	return config, nil
}
