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

// SQLite says how to open a SQLite database. The zero value opens a new one in a temporary folder.
type SQLite struct {
	Path   string       // the file, which Open creates if it is missing; empty: a new one in a temporary folder
	Config *gorm.Config // nil or without a Logger: GORM logs nothing
	Pool   int          // the largest number of connections; 0: no limit

	// Params are further parameters of the data source name, such as "_txlock=immediate".
	Params []string
}

// DSN returns the data source name. Statements wait for a lock for 10 s, and the file is not flushed.
func (s SQLite) DSN() string {
	params := []string{"_pragma=busy_timeout(10000)", "_pragma=journal_mode(WAL)", "_pragma=synchronous(0)"}
	return fileDSN(s.Path, append(params, s.Params...)...)
}

// fileDSN returns the data source name of a file. The folder of a test has the test's name, which may contain
// characters such as # that end a path in a URI.
func fileDSN(path string, params ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(params, "&")
}

// Open returns a handle with a pool of its own. The pool is closed when the test ends.
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

// SQLitePath returns the path of a file in a temporary folder. The file does not exist yet.
func SQLitePath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "test.db")
}

// quiet returns config, or a new one for nil, with a logger that discards everything if it has none.
func quiet(config *gorm.Config) *gorm.Config {
	if config == nil {
		config = &gorm.Config{}
	}
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	return config
}
