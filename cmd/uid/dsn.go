package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

// A dialect is GORM's name of a supported database.
type dialect string

const (
	mysqlDialect    dialect = "mysql"
	postgresDialect dialect = "postgres"
	sqliteDialect   dialect = "sqlite"
)

// A source is a data source name, and the dialect of its database.
type source struct {
	dialect dialect
	dsn     string // for MySQL and PostgreSQL a URL or the driver's form, for SQLite a path or a URI
}

var (
	driverForm  = regexp.MustCompile(`^([^/]*@)?(tcp|tcp6|unix)?(\(.*\))?/[^/]*$|^(.*@)?(tcp|tcp6|unix)\(.*\)/`)
	keywordForm = regexp.MustCompile(`(^|\s)(host|hostaddr|dbname|user|service)\s*=`)
)

// parseSource detects the database of a data source name. Errors do not contain it, because it may have a password.
func parseSource(dsn string) (source, error) {
	scheme, rest, hasScheme := strings.Cut(dsn, ":")
	switch scheme = strings.ToLower(scheme); {
	case dsn == "":
		return source{}, errors.New("no database given; pass --dsn or set UID_DSN, such as " +
			"mysql://user:password@host/shop or sqlite:shop.db")
	case hasScheme && (scheme == "mysql" || scheme == "mariadb") && strings.HasPrefix(rest, "//"):
		return source{mysqlDialect, "mysql:" + rest}, nil
	case hasScheme && (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(rest, "//"):
		return source{postgresDialect, "postgres:" + rest}, nil
	case hasScheme && (scheme == "sqlite" || scheme == "sqlite3"):
		return source{sqliteDialect, strings.TrimPrefix(rest, "//")}, nil
	case hasScheme && scheme == "file":
		return source{sqliteDialect, dsn}, nil
	case isFile(dsn):
		return source{sqliteDialect, dsn}, nil
	case keywordForm.MatchString(dsn):
		return source{postgresDialect, dsn}, nil
	case strings.Contains(dsn, "://"):
		return source{}, errors.New("the scheme of the data source name is unknown; use mysql, mariadb, postgres, " +
			"postgresql or sqlite")
	case strings.ContainsAny(dsn, "@(") && driverForm.MatchString(dsn):
		return source{mysqlDialect, dsn}, nil
	}
	return source{sqliteDialect, dsn}, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// dialector returns GORM's dialector. For a server it connects first, within timeout.
func (s source) dialector(ctx context.Context, use usage, timeout time.Duration) (gorm.Dialector, error) {
	switch s.dialect {
	case mysqlDialect:
		return openMySQL(ctx, s.dsn, timeout)
	case postgresDialect:
		return openPostgres(ctx, s.dsn, timeout)
	}
	dsn, err := sqliteURI(s.dsn, use)
	if err != nil {
		return nil, err
	}
	return sqlite.Open(dsn), nil
}

// A usage is how a command uses the database.
type usage int

const (
	reads usage = iota
	writes
	prepares // writes, also where no process has begun an id space yet
	repairs  // like prepares, but does not warn, because the tables may have been dropped
)

// fileName matches names of files with an extension. Errors may quote such a name, because it contains no password.
var fileName = regexp.MustCompile(`^[^@=;:]{1,200}\.[a-z0-9]{1,8}$`)

// sqliteURI returns a URI with which SQLite creates no file, and rejects changes if the command only reads.
func sqliteURI(path string, use usage) (string, error) {
	path = strings.TrimPrefix(path, "file:")
	path, query, _ := strings.Cut(path, "?")
	if unescaped, err := url.PathUnescape(path); err == nil && !isFile(path) {
		path = unescaped
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fileName.MatchString(path):
		return "", fmt.Errorf("the SQLite file %q does not exist; for a server, use a data source name such as "+
			"mysql://user:password@host/shop", path)
	case errors.Is(err, fs.ErrPermission) && fileName.MatchString(path):
		return "", fmt.Errorf("the file %q cannot be read: permission denied", path)
	case err != nil: // do not quote the text: it may be for a server, with a password
		return "", errors.New("the data source name is neither a file nor a known form for a server; use a form such " +
			"as mysql://user:password@host/shop")
	case info.IsDir():
		return "", fmt.Errorf("%q is a folder, not an SQLite database", path)
	}
	params := []string{"mode=rw", "_pragma=busy_timeout(10000)", "_txlock=immediate"}
	if use == reads {
		params[2] = "_pragma=query_only(1)"
	}
	if query != "" {
		params = append(params, query)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(params, "&"), nil
}

// parseURL parses the URL of a server. The error does not contain the URL.
func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.User == nil && strayAt.MatchString(u.Path+u.RawQuery+u.Fragment) {
		return nil, errURL
	}
	return u, nil
}

var (
	// strayAt matches an @ after the host. The parser has then taken a part of the password for the host.
	strayAt = regexp.MustCompile(`^[^=]*@`)

	urlPassword     = regexp.MustCompile(`://[^/?#]*?:(.*)@`)
	driverPassword  = regexp.MustCompile(`^[^:/@]*:(.*)@`)
	keywordPassword = regexp.MustCompile(`(?i)\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)`)
)

// redact hides the password of the data source name in a text, because some errors of drivers contain the password.
func redact(text, dsn string) string {
	if dsn == "" {
		return text
	}
	for _, pattern := range []*regexp.Regexp{urlPassword, driverPassword, keywordPassword} {
		m := pattern.FindStringSubmatch(dsn)
		if m == nil || m[1] == "" {
			continue
		}
		hidden := strings.ReplaceAll(dsn, m[1], "xxxxx")
		text = strings.ReplaceAll(text, dsn, hidden)
		forms := []string{m[1]}
		if plain, err := url.PathUnescape(m[1]); err == nil {
			forms = append(forms, plain, url.QueryEscape(plain), url.PathEscape(plain), url.UserPassword("", plain).String()[1:])
		}
		for _, form := range forms {
			for _, around := range [][2]string{{":", "@"}, {"password=", ""}, {`"`, `"`}, {"'", "'"}, {"`", "`"}} {
				text = strings.ReplaceAll(text, around[0]+form+around[1], around[0]+"xxxxx"+around[1])
			}
		}
	}
	return text
}
