package uidplugin

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
	"gorm.io/gorm/utils"
)

// A plan is what there is to do for a model: made once for each of GORM's
// schemas, and then only read, but for what is atomic.
type plan struct {
	*model.Model
	fields []*field
	err    error // the model cannot be used; every create says so

	// sources are those of fields, and of the models that GORM can create along
	// with this one, directly or not. When all have a generator, ready is set and
	// stays, and no statement is searched for what it needs any more.
	sources []*source
	ready   atomic.Bool

	relations []association // that GORM saves; they find the plans of their models later
	untagged  bool          // the key is an ID without the tag, and no foreign key
}

// A field is a uid field of a model, and the source of its ids.
type field struct {
	*model.Field
	source *source
}

// plan returns the plan of a schema.
func (c *core) plan(s *schema.Schema) *plan {
	if p := (*c.plans.Load())[s]; p != nil {
		return p
	}
	return c.addPlan(s)
}

// addPlan makes a plan. The map of plans is copied for it, because models are few
// and come early, and are looked up in every create: reading a map that nobody
// changes needs no lock.
func (c *core) addPlan(s *schema.Schema) *plan {
	p := c.newPlan(s) // calls code of the application, so no lock is held
	c.mu.Lock()
	plans := *c.plans.Load()
	if other := plans[s]; other != nil {
		c.mu.Unlock()
		return other // another goroutine was faster
	}
	plans = maps.Clone(plans)
	plans[s] = p
	c.plans.Store(&plans)
	warn := (p.AutoIncrement || p.untagged) && !c.warned[s.Table]
	if warn {
		c.warned[s.Table] = true
	}
	c.mu.Unlock()
	switch {
	case warn && p.untagged:
		c.log.Warn("uidplugin: the key of this model has the type uidplugin.ID and no tag uid: a row whose key is zero is inserted with the key 0."+
			` Tag it gorm:"primaryKey;uid", or embed uidplugin.Model.`, "table", s.Table, "model", s.Name, "field", s.PrioritizedPrimaryField.Name)
	case warn:
		c.warnAutoIncrement(s)
	}
	return p
}

func (c *core) newPlan(s *schema.Schema) *plan {
	p := &plan{relations: associations(s), untagged: untagged(s)}
	if p.Model, p.err = model.New(c.db, s, c.target()); p.err != nil {
		return p
	}
	for _, f := range p.Fields {
		source, err := c.source(s.Table, f.Field)
		if err != nil {
			p.err = err
			return p
		}
		p.fields = append(p.fields, &field{f, source})
	}
	seen := map[*source]bool{}
	model.Walk(c.db, s, func(s *schema.Schema) {
		for _, sf := range model.UIDFields(s) {
			// Errors of related models arise when one of them is created.
			if src, err := c.source(s.Table, sf); err == nil && !seen[src] {
				seen[src] = true
				p.sources = append(p.sources, src)
			}
		}
	})
	p.ready.Store(len(p.sources) == 0)
	return p
}

// key returns the primary key of the model if that is a uid field, else its first uid field; nil if
// it has none.
func (p *plan) key() *field {
	key := p.Key()
	for _, f := range p.fields {
		if f.Field == key {
			return f
		}
	}
	return nil
}

// keyOf returns the plan and the key of the model that value is a row of.
func (c *core) keyOf(db *gorm.DB, value any) (*plan, *field, error) {
	s, err := model.Parse(db, value)
	if err != nil {
		return nil, nil, err
	}
	p := c.plan(s)
	f := p.key()
	switch {
	case p.err != nil:
		return nil, nil, p.err
	case f == nil:
		return nil, nil, fmt.Errorf("%w: %T", ErrNoField, value)
	}
	return p, f, nil
}

// target returns what uid fields have to hold.
func (c *core) target() model.Target {
	return model.Target{Largest: c.largest, Dialect: c.db.Dialector.Name()}
}

// untagged reports whether the key of a model is an [ID] that gets its value from nowhere.
func untagged(s *schema.Schema) bool {
	key := s.PrioritizedPrimaryField
	return key != nil && key.IndirectFieldType == reflect.TypeFor[ID]() && !model.HasTag(key) && s.ModelType.Name() != "" &&
		!slices.ContainsFunc(s.Relationships.BelongsTo, func(r *schema.Relationship) bool {
			return slices.ContainsFunc(r.References, func(ref *schema.Reference) bool { return ref.ForeignKey == key })
		})
}

// makePlain makes the uid keys of s, and of what it is associated with, plain
// BIGINT columns: GORM takes every single integer key for AUTO_INCREMENT. The
// schema is shared by all that use the model, so one that is in use stays as it
// is.
func (c *core) makePlain(db *gorm.DB, s *schema.Schema) {
	model.Walk(db, s, func(s *schema.Schema) {
		key := s.PrioritizedPrimaryField
		if (*c.plans.Load())[s] != nil {
			return // in use; the log has warned of its key
		}
		if key == nil || !key.AutoIncrement || len(model.UIDFields(s)) == 0 || !model.HasTag(key) {
			return
		}
		if utils.CheckTruth(key.TagSettings["AUTOINCREMENT"]) {
			return // as the model's author says
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

// inspect warns of tables that are there already with columns that do not fit:
// that the database numbers, or that are too narrow. The models say nothing of
// that, and GORM's AutoMigrate does not change a key.
func (c *core) inspect(ctx context.Context, db *gorm.DB, models []any) {
	if c.wdb == nil || len(models) == 0 {
		return
	}
	fields := map[[2]string]bool{}
	var tables []string
	for _, m := range models {
		if s, err := model.Parse(db, m); err == nil {
			tables = append(tables, s.Table)
			for _, f := range model.UIDFields(s) {
				fields[[2]string{s.Table, f.DBName}] = true
			}
		}
	}
	columns, err := c.sql.ColumnsOf(ctx, tables...)
	if err != nil {
		return // nothing depends on it
	}
	dialect := c.db.Dialector.Name()
	for _, column := range columns {
		if !fields[[2]string{column.Table, column.Name}] {
			continue
		}
		var table, name strings.Builder
		c.db.Dialector.QuoteTo(&table, column.Table)
		c.db.Dialector.QuoteTo(&name, column.Name)
		kind := " BIGINT"
		if strings.HasSuffix(column.Type, "unsigned") {
			kind = " BIGINT UNSIGNED"
		}
		change := "ALTER TABLE " + table.String() + " MODIFY " + name.String() + kind + " NOT NULL"
		if dialect == "postgres" {
			change = "ALTER TABLE " + table.String() + " ALTER COLUMN " + name.String() + " DROP DEFAULT"
		}
		if column.Auto {
			c.log.Warn("uidplugin: the database numbers this column: a row that is inserted without the plugin, by an old process for one,"+
				" can take a number that the plugin is about to use, and then a create fails with a duplicate key."+
				" When all that insert use the plugin, run the statement.",
				"table", column.Table, "column", column.Name, "statement", change)
		}
		if model.TooNarrow(schema.DataType(strings.TrimSuffix(column.Type, " unsigned")), dialect, 19) || strings.HasPrefix(column.Type, "int") {
			c.log.Warn("uidplugin: this column is too narrow for ids: creates will fail; make it, and foreign keys to it, BIGINT first",
				"table", column.Table, "column", column.Name, "type", column.Type)
		}
	}
}

func (c *core) warnAutoIncrement(s *schema.Schema) {
	what, change := "", ""
	switch c.db.Dialector.Name() {
	case "mysql", "sqlite":
		what = ": the largest id plus one, which is the next id of the plugin, so that a later create fails with a duplicate key"
	default:
		what = ", where a sequence counts on its own"
	}
	switch c.db.Dialector.Name() {
	case "mysql":
		change = "; change a table that is there by ALTER TABLE ... MODIFY ... BIGINT NOT NULL"
	case "postgres":
		change = "; change a table that is there by ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT"
	case "sqlite":
		change = "; but SQLite gives every integer primary key a number, so let nothing else insert"
	}
	c.log.Warn("uidplugin: GORM takes the key of this model for AUTO_INCREMENT: a row that is inserted without the plugin,"+
		" by raw SQL for one, gets its key from the database"+what+
		". Give the model to WithModels, or to the plugin's AutoMigrate, or tag the key autoIncrement:false"+change+".",
		"table", s.Table, "model", s.Name, "field", s.PrioritizedPrimaryField.Name)
}
