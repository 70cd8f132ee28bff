package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Each form of a data source name means the right database.
func TestParseSource_Forms(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "a@b(c)")
	must(t, os.WriteFile(file, nil, 0o600))
	for dsn, want := range map[string]source{
		"mysql://u:p@h:3306/shop?tls=true":        {mysqlDialect, "mysql://u:p@h:3306/shop?tls=true"},
		"MariaDB://u@h/shop":                      {mysqlDialect, "mysql://u@h/shop"},
		"u:p@tcp(h:3306)/shop?parseTime=true":     {mysqlDialect, "u:p@tcp(h:3306)/shop?parseTime=true"},
		"u:p/w@unix(/run/mysqld.sock)/shop":       {mysqlDialect, "u:p/w@unix(/run/mysqld.sock)/shop"},
		"u@/shop":                                 {mysqlDialect, "u@/shop"},
		"tcp(h)/shop":                             {mysqlDialect, "tcp(h)/shop"},
		"postgres://u:p@h/shop":                   {postgresDialect, "postgres://u:p@h/shop"},
		"postgresql://u:p@h/shop?sslmode=disable": {postgresDialect, "postgres://u:p@h/shop?sslmode=disable"},
		"host=h dbname=shop password='a b'":       {postgresDialect, "host=h dbname=shop password='a b'"},
		"sqlite:shop.db":                          {sqliteDialect, "shop.db"},
		"sqlite:///var/shop.db":                   {sqliteDialect, "/var/shop.db"},
		"file:shop.db?cache=shared":               {sqliteDialect, "file:shop.db?cache=shared"},
		"shop.db":                                 {sqliteDialect, "shop.db"},
		"./data/shop.db":                          {sqliteDialect, "./data/shop.db"},
		file:                                      {sqliteDialect, file},
	} {
		if got, err := parseSource(dsn); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", dsn, got, err, want)
		}
	}
	for _, dsn := range []string{"", "oracle://u:secret@h/x", "sqlserver://u:secret@h"} {
		if _, err := parseSource(dsn); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// A URL of MySQL and the driver's form mean the same, even with characters that are special in either.
func TestMySQLConfig_ReadsURLs(t *testing.T) {
	t.Parallel()

	config, err := mysqlConfig(
		"mysql://a%3Ab:p%40s%2F%23%25@db.example:3307/my%20shop?loc=Asia%2FShanghai&tls=skip-verify&sql_mode=ANSI",
	)
	must(t, err)
	if config.User != "a:b" || config.Passwd != "p@s/#%" || config.Addr != "db.example:3307" ||
		config.DBName != "my shop" ||
		config.Loc.String() != "Asia/Shanghai" || config.TLSConfig != "skip-verify" ||
		config.Params["sql_mode"] != "ANSI" {
		t.Errorf("%+v", config)
	}
	for dsn, want := range map[string]string{
		"mysql://u@h/shop": "h:3306", "mysql://u@[::1]/shop": "[::1]:3306",
		"mysql:///shop": "127.0.0.1:3306", "mysql://u@[::1]:3/shop": "[::1]:3",
	} {
		if config, err := mysqlConfig(dsn); err != nil || config.Addr != want {
			t.Errorf("%s: %+v, %v", dsn, config, err)
		}
	}
	for _, dsn := range []string{"mysql://u:se#cret@h:x/shop", "mysql://u:s%zzcret@h/shop",
		"mysql://u:secret@h/shop?tls=nosuch&loc=No%2FWhere",
	} {
		if _, err := mysqlConfig(dsn); err == nil || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// The URLs of servers work as their drivers' own forms do.
func TestConnect_ByURL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ids := shop(t, d.Open(t, nil), "web-1", "first")
		var dsn string
		if d.Name == "postgres" {
			u := &url.URL{Scheme: "postgres", Path: "/" + d.Schema}
			for _, m := range regexp.MustCompile(`(\w+)=(\S+)`).FindAllStringSubmatch(os.Getenv(d.Variable), -1) {
				switch m[1] {
				case "host":
					u.Host = m[2] + u.Host
				case "port":
					u.Host += ":" + m[2]
				case "user":
					u.User = url.UserPassword(m[2], "test")
				case "sslmode":
					u.RawQuery = "sslmode=" + m[2]
				}
			}
			dsn = u.String()
		} else {
			config, err := mysqlConfig(d.DSN())
			must(t, err)
			dsn = "mysql://" + url.UserPassword(config.User, config.Passwd).
				String() +
				"@" + config.Addr + "/" + config.DBName + "?parseTime=true"
		}
		runner{t: t, dsn: dsn}.run("where", ids[0].String()).want(t, exitOK, "orders", "web-1")
	}, "mariadb", "mysql", "postgres")
}

// No output has the password, however an error quotes the data source name.
func TestRedact_HidesThePassword(t *testing.T) {
	t.Parallel()

	for dsn, password := range map[string]string{
		"mysql://root:s3cr%40t@h/shop": "s3cr@t", "root:s3cr3t@tcp(h)/shop": "s3cr3t", "postgres://u:s3cr3t@h/x": "s3cr3t",
		"host=h password=s3cr3t user=u": "s3cr3t", "host=h password='s3 cr3t' user=u": "'s3 cr3t'",
		"postgres://h/x?password=s3cr3t&user=u": "s3cr3t",
	} {
		for _, text := range []string{dsn, "cannot parse `" + dsn + "`", "user root:" + password + "@h",
			"password=" + password, `"` + password + `"`,
		} {
			if got := redact(text, dsn); strings.Contains(got, password) || strings.Contains(got, "s3cr") {
				t.Errorf("%s: %s", dsn, got)
			}
		}
	}
	if got := redact("test: access denied for test", "test:test@tcp(h)/test"); got != "test: access denied for test" {
		t.Errorf("a text without a password became %q", got)
	}
}

// Errors about an invalid data source name do not contain its password either.
func TestConnect_HidesThePasswordOfWhatItCannotRead(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("x", 300)
	for _, dsn := range []string{
		`host=h user=u password=s3\ cr3t sslmode=bogus`, `host=h user=u password='s3 cr3t' sslmode=bogus`,
		"host=h password = s3cr3t bogus", "postgres://u:s3cr3t@h:port/x", "postgres://h/x?password=s3cr3t&sslmode=bogus",
		"Server=h;Uid=u;Pwd=s3cr3t;", "sqlite:u:s3cr3t@h/x", "u:s3cr3t@h:3306/shop", "u:s3cr3t@tcp(h:3306/shop",
		"mysql://u:s3/cr3t@h/shop", "oracle://u:s3cr3t@h/x", "u:12/s3cr3t@tcp(h)/x", "mysql://u:12/s3cr3t@127.0.0.1/shop",
		"mysql://u:12#s3cr3t@127.0.0.1/shop", "postgres://u:12/s3cr3t@127.0.0.1/shop", "postgres://u:12?s3cr3t@127.0.0.1/shop",
		"AccountKey:s3cr3t", "scott/s3cr3t", "u:s3cr3t" + long, long + "/s3cr3t@h", "sqlite:" + long + "s3cr3t",
	} {
		got := runner{t: t, dsn: dsn}.run("tables")
		if got.want(t, exitFailed); strings.Contains(got.err, "cr3t") || strings.Contains(got.err, "lookup u") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: %s", dsn, got.err)
		}
	}
}

// A command that only reads cannot change a file, and none creates one.
func TestConnect_SQLiteRefusesChanges(t *testing.T) {
	t.Parallel()

	d, _, _ := sqliteShop(t)
	for _, path := range []string{d.Schema, "sqlite:" + d.Schema, "file:" + d.Schema,
		"file:" + d.Schema + "?_pragma=cache_size(10)",
	} {
		a := &app{dsn: path, timeout: 1e10, env: func(string) string { return "" }}
		db, err := a.open(context.Background(), reads)
		must(t, err)
		testkit.IsError(t, db.gorm.Exec("DELETE FROM orders").Error, nil, "readonly")
		must(t, db.close())
		db, err = a.open(context.Background(), writes)
		must(t, err)
		must(t, db.gorm.Exec("UPDATE orders SET text = 'x'").Error)
		must(t, db.close())
	}
	_, err := sqliteURI(t.TempDir(), reads)
	testkit.IsError(t, err, nil, "is a folder")
}
