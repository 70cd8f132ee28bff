// wing: segment

package uidplugin

import (
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/segments"
	"github.com/uidplugin/uidplugin/segment"
)

// WithSegments configures the generator that tags name as gorm:"uid:segment". Its ids are small numbers. Like Leaf, it
// fetches ranges of them from a table. See [segment.Config] for units, limits and defaults. The default is the zero
// Config. A nil Now or Log means the plugin's, and a zero MaxWait or Timeout means the value of [WithTimeout].
//
// The row's tag, which Leaf calls biz_tag, may be set in the field's tag: gorm:"uid:segment:order-service". A Leaf
// service may share the row. By default the row's tag is the unquoted name of the table, followed by a dot and the
// column unless the column is a primary key.
//
// The default begins with the schema or database only if that is not the connection's current one. So all processes
// that insert into a table should connect to the same schema or database. The default is in lower case on SQLite
// and MySQL, except the table on MySQL if lower_case_table_names is 0. So all spellings share one row.
//
// Ids are at least Start, and above the largest value that the column has at first. A new tag is refused with
// [segment.ErrRow] unless Start is above this value; see Config.Used, which the plugin sets. Start should not be an
// id of the layout, because Locate would return a wrong place for such ids.
func WithSegments(s segment.Config) Option {
	return func(cfg *config.Config) { cfg.Specs[segments.Name] = segments.Spec("WithSegments", s) }
}

func addSegments(cfg *config.Config) { WithSegments(segment.Config{})(cfg) }
