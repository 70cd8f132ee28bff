package testkit

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// SQLite configures a SQLite database.
type SQLite struct {
	Path   string       // the file, created if missing; empty means a new one in a temporary folder
	Config *gorm.Config // GORM does not log if Config is nil or has no Logger
	Pool   int          // the largest number of connections; 0 means no limit

	// Params are further parameters of the data source name, such as "_txlock=immediate".
	Params []string
}

// DSN returns the data source name. Statements wait up to 10 s for a lock. For speed SQLite flushes nothing.
func (s SQLite) DSN() string {
	params := []string{"_pragma=busy_timeout(10000)", "_pragma=journal_mode(WAL)", "_pragma=synchronous(0)"}
	return fileDSN(s.Path, append(params, s.Params...)...)
}

// fileDSN escapes the path, because folders have the names of tests, and # in a name would end a path in a URI.
func fileDSN(path string, params ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(params, "&")
}

// Open returns a handle with its own pool, and closes the pool when the test ends.
func (s SQLite) Open(tb testing.TB) *gorm.DB {
	tb.Helper()
	if s.Path == "" {
		s.Path = SQLitePath(tb)
	}
	db, err := gorm.Open(sqlite.Open(s.DSN()), quiet(s.Config))
	Must(tb, err)
	pool, err := db.DB()
	Must(tb, err)
	pool.SetMaxOpenConns(s.Pool)
	tb.Cleanup(func() { _ = pool.Close() })
	return db
}

// SQLitePath returns the path of a new file in a temporary folder. It does not create the file.
func SQLitePath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "test.db")
}

// quiet returns config, or a new Config if config is nil. A missing Logger becomes one that discards everything.
func quiet(config *gorm.Config) *gorm.Config {
	if config == nil {
		config = &gorm.Config{}
	}
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	return config
}
