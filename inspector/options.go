package inspector

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/uidplugin/uidplugin"
)

// An Option of [New]. [WithPrefix], [WithModels], [WithMask], [WithPageSize] and [WithLogger] return one.
type Option func(*config) error

// A config is what the options say.
type config struct {
	prefix   string
	models   []any
	mask     func(table, column string, value any) any
	pageSize int
	log      *slog.Logger
}

const (
	defaultPageSize = 50
	maxPageSize     = 1000
)

// WithPrefix sets the path below which the page is mounted, such as "/admin/uid". A slash at its end does not count.
// The default is the root. Behind [http.StripPrefix] the option is not needed, and does no harm: all links are
// relative.
func WithPrefix(prefix string) Option {
	return func(c *config) error {
		if prefix != "" && prefix[0] != '/' {
			return fmt.Errorf("%w: inspector.WithPrefix: %q does not begin with a slash", uidplugin.ErrOption, prefix)
		}
		c.prefix = strings.TrimRight(prefix, "/")
		return nil
	}
}

// WithModels lets the page show rows of these models. Models are pointers to structs, as for [uidplugin.OnlyModels].
// The default is none. A field tagged json:"-", or in an embedded struct that is, is never shown; for the others see
// [WithMask].
func WithModels(models ...any) Option {
	return func(c *config) error {
		c.models = append(c.models, models...)
		return nil
	}
}

// WithMask sets a function that says what the page shows of a column. It gets the value of the field, or of the column
// for a field with a serializer. It returns that value, a part of it, or a text in its place. It is called for each
// column of each row that is shown, by several goroutines at once. The default shows the value.
func WithMask(mask func(table, column string, value any) any) Option {
	return func(c *config) error {
		if mask == nil {
			return fmt.Errorf("%w: inspector.WithMask: the function is nil; leave the option out", uidplugin.ErrOption)
		}
		c.mask = mask
		return nil
	}
}

// WithPageSize sets how many slots, worker ids or sessions a page lists: 1 to 1,000. The default is 50.
func WithPageSize(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxPageSize {
			return fmt.Errorf("%w: inspector.WithPageSize: %d is not between 1 and %d", uidplugin.ErrOption, n, maxPageSize)
		}
		c.pageSize = n
		return nil
	}
}

// WithLogger sets where errors of the database are logged. The default is [slog.Default] at the time of New.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) error {
		if log == nil {
			return fmt.Errorf("%w: inspector.WithLogger: the logger is nil; leave the option out", uidplugin.ErrOption)
		}
		c.log = log
		return nil
	}
}
