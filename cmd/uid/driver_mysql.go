package main

import (
	"cmp"
	"context"
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

// readMargin is how much longer the driver waits than a statement may take, so that the statement ends first.
const readMargin = 2 * time.Second

// openMySQL returns the dialector of a URL, or of a name in the driver's form. Times are in UTC unless dsn sets a
// zone. The driver gets limits of its own for a silent server, because GORM asks for the version without a context.
func openMySQL(ctx context.Context, dsn string, timeout time.Duration) (gorm.Dialector, error) {
	config, err := mysqlConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // errors are returned as well
	if config.Timeout == 0 {
		config.Timeout = maxConnect
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
	config.ParseTime = false // show values as the database writes them
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("the data source name of MySQL: %w", err)
	}
	pool := sql.OpenDB(connector)
	return gormmysql.New(gormmysql.Config{Conn: pool}), reach(ctx, pool, min(timeout, config.Timeout))
}

func mysqlConfig(dsn string) (*mysql.Config, error) {
	if !strings.HasPrefix(dsn, "mysql://") {
		config, err := mysql.ParseDSN(dsn)
		if err == nil {
			return config, nil
		}
		// The driver's reason may contain a part of the password, unless it is about the parameters.
		rest, _, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
		if _, failed := mysql.ParseDSN(dsn[:strings.LastIndexByte(dsn, '/')+1] + rest); failed != nil {
			err = errors.New("use the form user:password@tcp(host:3306)/shop")
		}
		return nil, fmt.Errorf("the data source name of MySQL cannot be read: %w", err)
	}
	u, err := parseURL(dsn)
	if err != nil {
		return nil, err
	}
	// Let the driver read the parameters.
	config, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL cannot be read: %w", err)
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), "3306")
	}
	config.DBName = strings.TrimPrefix(u.Path, "/")
	return config, nil
}
