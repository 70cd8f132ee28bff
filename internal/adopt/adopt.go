// Package adopt is for tables whose keys the database numbers: by AUTO_INCREMENT, a sequence or IDENTITY. It
// reports such keys, leaves gaps after ids for rows of other programs, and keeps GORM from creating such keys.
package adopt

import (
	"sync"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A Numbering watches the keys that the database numbers. It is safe for concurrent use.
type Numbering struct {
	*config.Config
	db      *gorm.DB
	sql     *sqldb.DB // nil with a fixed worker id
	catalog *catalog.Catalog
	supply  *supply.Supply
	workers func(*gorm.DB) *workernode.DB // returns the reader of WORKER_NODE

	logged sync.Map // what was logged, by kind, table and column

	// db.Use writes these two fields before goroutines share the handle.
	started bool     // db.Use has succeeded
	undo    []func() // restores GORM's schemas if db.Use fails
}

// New returns the Numbering of a handle.
func New(
	cfg *config.Config,
	db *gorm.DB,
	sql *sqldb.DB,
	models *catalog.Catalog,
	ids *supply.Supply,
	workers func(*gorm.DB) *workernode.DB,
) *Numbering {
	n := &Numbering{Config: cfg, db: db, sql: sql, catalog: models, supply: ids, workers: workers}
	models.OnPlan = n.plan
	return n
}

// Start notes that db.Use has succeeded.
func (n *Numbering) Start() { n.started = true }

// Undo restores GORM's schemas after db.Use has failed.
func (n *Numbering) Undo() {
	for _, undo := range n.undo {
		undo()
	}
}

// plan logs a key that GORM numbers unasked. If the tag asks for it, ids leave gaps on MySQL and MariaDB.
func (n *Numbering) plan(p *catalog.Plan) {
	switch {
	case !p.AutoIncrement, p.Err == nil && p.KeyField().Source.Foreign:
	case !model.WantsAutoIncrement(p.Schema.PrioritizedPrimaryField):
		n.tell([]string{p.Schema.Table + "." + p.Schema.PrioritizedPrimaryField.DBName})
	case n.db.Dialector.Name() == "mysql" && p.Err == nil:
		n.leaveGaps(p.KeyField().Source)
	}
}

// MakePlain removes AUTO_INCREMENT from GORM's schemas of models, so that migrations create plain BIGINT keys. Call
// it before the models are listed.
func (n *Numbering) MakePlain(db *gorm.DB, models []any) {
	for _, m := range models {
		if s, err := model.Parse(db, m); err == nil {
			n.makePlain(db, s)
		}
		if elsewhere := model.ParseElsewhere(db, m); elsewhere != nil {
			n.makePlain(db, elsewhere)
		}
	}
}

// makePlain makes the uid keys of s and its associations plain BIGINT columns, because GORM treats every single
// integer key as AUTO_INCREMENT. A schema that has a plan stays unchanged, because other goroutines may read it.
func (n *Numbering) makePlain(db *gorm.DB, s *schema.Schema) {
	model.Walk(db, s, func(s *schema.Schema) {
		key := s.PrioritizedPrimaryField
		if n.catalog.Planned(s) {
			return // the method plan logs such a key
		}
		if key == nil || !key.AutoIncrement || len(model.UIDFields(s)) == 0 || !model.HasTag(key) {
			return
		}
		if model.WantsAutoIncrement(key) {
			return
		}
		before := *key
		defaults := s.FieldsWithDefaultDBValue
		if !n.started {
			n.undo = append(n.undo, func() {
				key.AutoIncrement, key.HasDefaultValue, s.FieldsWithDefaultDBValue = before.AutoIncrement, before.HasDefaultValue, defaults
			})
		}
		key.AutoIncrement = false
		if key.DefaultValue == "" {
			key.HasDefaultValue = false
			var rest []*schema.Field
			for _, f := range s.FieldsWithDefaultDBValue {
				if f != key {
					rest = append(rest, f)
				}
			}
			s.FieldsWithDefaultDBValue = rest
		}
	})
}

// once reports whether a line of the log is the first of its kind about a column.
func (n *Numbering) once(kind, table, column string) bool {
	_, before := n.logged.LoadOrStore([3]string{kind, table, column}, true)
	return !before
}

func (n *Numbering) quote(name string) string { return sqldb.Quoted(n.db.Dialector, name) }
