package inspector

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/uidplugin/uidplugin"
)

// An Option of [New] comes from [WithPrefix], [WithModels], [WithMask], [WithPageSize] or [WithLogger].
type Option func(*config) error

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

// WithPrefix sets the path below which the page is mounted, such as "/admin/uid". A trailing slash is ignored. The
// default is the root. Behind [http.StripPrefix] you can leave this option out, because all links are relative.
func WithPrefix(prefix string) Option {
	return func(c *config) error {
		if prefix != "" && prefix[0] != '/' {
			return fmt.Errorf("%w: inspector.WithPrefix: %q must begin with a slash", uidplugin.ErrOption, prefix)
		}
		c.prefix = strings.TrimRight(prefix, "/")
		return nil
	}
}

// WithModels lets the page show rows of these models, which are pointers to structs, as for [uidplugin.OnlyModels]. The
// default is no model. Fields tagged json:"-", or in an embedded struct with this tag, are never shown. Use [WithMask]
// to hide other fields.
func WithModels(models ...any) Option {
	return func(c *config) error {
		c.models = append(c.models, models...)
		return nil
	}
}

// WithMask sets a function that masks values. It is called for each value that is shown, by several goroutines at
// once. The function gets the value of the field, or of the column if the field has a serializer. It should return
// the value, a part of the value, or a replacement. By default values are shown unchanged.
func WithMask(mask func(table, column string, value any) any) Option {
	return func(c *config) error {
		if mask == nil {
			return fmt.Errorf("%w: inspector.WithMask: the function is nil; leave the option out", uidplugin.ErrOption)
		}
		c.mask = mask
		return nil
	}
}

// WithPageSize sets the number of slots, worker ids or sessions on a page, from 1 to 1,000. The default is 50.
func WithPageSize(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxPageSize {
			return fmt.Errorf("%w: inspector.WithPageSize: %d is outside 1 to %d", uidplugin.ErrOption, n, maxPageSize)
		}
		c.pageSize = n
		return nil
	}
}

// WithLogger sets the logger for database errors. The default is [slog.Default] at the time of New.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) error {
		if log == nil {
			return fmt.Errorf("%w: inspector.WithLogger: the logger is nil; leave the option out", uidplugin.ErrOption)
		}
		c.log = log
		return nil
	}
}
