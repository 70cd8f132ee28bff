package uidplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
	"gorm.io/gorm/utils"
)

// A plan is what there is to do for a model: made once for each of GORM's
// schemas, and then only read, but for what is atomic.
type plan struct {
	schema *schema.Schema
	fields []*field
	err    error // the model cannot be used; every create says so

	// sources are those of fields, and of the models that GORM can create along
	// with this one, directly or not. When all have a generator, ready is set and
	// stays, and no statement is searched for what it needs any more.
	sources []*source
	ready   atomic.Bool

	// mayConflict: a hook, or the type of a field, may add an ON CONFLICT after the
	// ids were set. conflict is the one that comes with a type; it may be nil.
	mayConflict bool
	conflict    clause.Interface

	lost      map[*schema.Relationship]error // associations that lose ids; all of them are in err
	relations []association                  // that GORM saves; they find the plans of their models later

	// mapSchema is the schema for a create from maps; nil if it is as good as
	// schema. See withoutDefault.
	mapSchema *schema.Schema

	// uniques returns the keys and unique indexes that the model declares, but for
	// those with uid fields, which a conflict is hardly about.
	uniques func() [][]*schema.Field

	autoIncrement bool // the key is one that GORM takes for AUTO_INCREMENT
	untagged      bool // the key is an ID without the tag, and no foreign key
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
	warn := (p.autoIncrement || p.untagged) && !c.warned[s.Table]
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
	p := &plan{schema: s, relations: associations(s), mayConflict: s.BeforeCreate || s.BeforeSave}
	for _, added := range s.CreateClauses {
		if added.Name() == onConflict {
			p.conflict, p.mayConflict = added, true
		}
	}
	for _, sf := range uidFields(s) {
		if s.Name == "" && s.Table == c.db.NamingStrategy.TableName("") { // which may be a prefix
			p.err = fmt.Errorf("%w %s.%s: its model has no name, so it has no table of its own that an id could resolve to; give the struct type a name or a method TableName",
				ErrField, cmp.Or(s.Name, "struct"), sf.Name)
			return p
		}
		f, err := newField(sf, c.largest, c.db.Dialector.Name())
		if err == nil {
			f.source, err = c.source(s.Table, sf)
		}
		if err != nil {
			p.err = err
			return p
		}
		p.fields = append(p.fields, f)
	}
	if p.lost = c.checkForeignKeys(s); len(p.lost) > 0 {
		p.err = joined(s, p.lost)
		return p
	}
	if len(p.fields) > 0 {
		if key := s.PrioritizedPrimaryField; key != nil && key.HasDefaultValue && key.DefaultValue == "" && hasTag(key) {
			p.mapSchema = withoutDefault(s, key)
			p.autoIncrement = key.AutoIncrement
		}
	}
	p.untagged = untagged(s)
	p.uniques = sync.OnceValue(func() [][]*schema.Field { return uniques(s) })
	seen := map[*source]bool{}
	walk(c.db, s, func(s *schema.Schema) {
		for _, sf := range uidFields(s) {
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

// untagged reports whether the key of a model is an [ID] that gets its value from nowhere.
func untagged(s *schema.Schema) bool {
	key := s.PrioritizedPrimaryField
	return key != nil && key.IndirectFieldType == reflect.TypeFor[ID]() && !hasTag(key) && s.ModelType.Name() != "" &&
		!slices.ContainsFunc(s.Relationships.BelongsTo, func(r *schema.Relationship) bool {
			return slices.ContainsFunc(r.References, func(ref *schema.Reference) bool { return ref.ForeignKey == key })
		})
}

func hasTag(f *schema.Field) bool {
	_, ok := tagged(f)
	return ok
}

// walk visits s and all schemas that GORM can reach from it when it saves
// associations, each once. s was returned by GORM's Parse.
func walk(db *gorm.DB, s *schema.Schema, visit func(*schema.Schema)) {
	seen := map[*schema.Schema]bool{}
	var step func(*schema.Schema)
	step = func(s *schema.Schema) {
		if seen[s] {
			return
		}
		seen[s] = true
		visit(s)
		for _, r := range relations(s) {
			for _, related := range [...]*schema.Schema{r.FieldSchema, r.JoinTable} {
				if related == nil || seen[related] || related.ModelType.Name() == "" {
					continue // GORM's own join tables have no uid fields
				}
				// Another goroutine may be parsing the related model at this moment;
				// Parse waits until it has.
				if parsed, err := parse(db, reflect.New(related.ModelType).Interface()); err == nil {
					step(parsed)
				}
			}
		}
	}
	step(s)
}

// withoutDefault returns a copy of s in which key, its primary key, has no
// default in the database. For an AUTO_INCREMENT key GORM overwrites the keys of
// maps with what it believes the database assigned, or appends maps that it read
// back (go-gorm/gorm#7650, #5927), even if the keys were set; without a default it
// leaves them alone.
func withoutDefault(s *schema.Schema, key *schema.Field) *schema.Schema {
	k := *key
	k.HasDefaultValue, k.AutoIncrement = false, false
	c := copyForInsert(s)
	c.PrioritizedPrimaryField = &k
	c.FieldsByDBName[key.DBName] = &k
	c.FieldsWithDefaultDBValue = nil
	for _, f := range s.FieldsWithDefaultDBValue {
		if f != key {
			c.FieldsWithDefaultDBValue = append(c.FieldsWithDefaultDBValue, f)
		}
	}
	return c
}

// copyForInsert returns a copy of s that has what an INSERT needs, for one
// statement to change; it is no copy of the whole struct because a schema holds a
// mutex. It adds no ON CONFLICT of its own; see plan.conflict.
func copyForInsert(s *schema.Schema) *schema.Schema {
	c := &schema.Schema{
		Name: s.Name, ModelType: s.ModelType, Table: s.Table, PrioritizedPrimaryField: s.PrioritizedPrimaryField,
		DBNames: s.DBNames, PrimaryFields: s.PrimaryFields, PrimaryFieldDBNames: s.PrimaryFieldDBNames,
		Fields: s.Fields, FieldsByName: maps.Clone(s.FieldsByName), FieldsByBindName: s.FieldsByBindName,
		FieldsByDBName: maps.Clone(s.FieldsByDBName), FieldsWithDefaultDBValue: s.FieldsWithDefaultDBValue,
		CreateClauses: slices.DeleteFunc(slices.Clone(s.CreateClauses), func(c clause.Interface) bool { return c.Name() == onConflict }),
		BeforeCreate:  s.BeforeCreate, AfterCreate: s.AfterCreate, BeforeSave: s.BeforeSave, AfterSave: s.AfterSave,
	}
	// Callbacks of others may look at them.
	r, from := &c.Relationships, &s.Relationships
	from.Mux.RLock()
	defer from.Mux.RUnlock()
	r.HasOne, r.BelongsTo, r.HasMany, r.Many2Many = from.HasOne, from.BelongsTo, from.HasMany, from.Many2Many
	r.Relations, r.EmbeddedRelations = maps.Clone(from.Relations), from.EmbeddedRelations
	return c
}

// uniques is plan.uniques.
func uniques(s *schema.Schema) (all [][]*schema.Field) {
	add := func(fields []*schema.Field) {
		if len(fields) > 0 && !slices.ContainsFunc(fields, func(f *schema.Field) bool { _, ok := tagged(f); return ok }) {
			all = append(all, fields)
		}
	}
	add(s.PrimaryFields)
	for _, name := range s.DBNames {
		if f := s.FieldsByDBName[name]; f.Unique {
			add([]*schema.Field{f})
		}
	}
	for _, index := range s.ParseIndexes() {
		if index.Class == "UNIQUE" {
			var fields []*schema.Field
			for _, option := range index.Fields {
				if option.Field != nil {
					fields = append(fields, option.Field)
				}
			}
			add(fields)
		}
	}
	return all
}

// parse returns the schema of a model.
func parse(db *gorm.DB, model any) (*schema.Schema, error) {
	stmt := &gorm.Statement{DB: db}
	if err := stmt.Parse(model); err != nil {
		return nil, fmt.Errorf("uidplugin: model %T: %w", model, err)
	}
	return stmt.Schema, nil
}

// makePlain makes the uid keys of s, and of what it is associated with, plain
// BIGINT columns: GORM takes every single integer key for AUTO_INCREMENT. The
// schema is shared by all that use the model, so one that is in use stays as it
// is.
func (c *core) makePlain(db *gorm.DB, s *schema.Schema) {
	walk(db, s, func(s *schema.Schema) {
		key := s.PrioritizedPrimaryField
		if (*c.plans.Load())[s] != nil {
			return // in use; the log has warned of its key
		}
		if key == nil || !key.AutoIncrement || len(uidFields(s)) == 0 || !hasTag(key) {
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
		if s, err := parse(db, m); err == nil {
			tables = append(tables, s.Table)
			for _, f := range uidFields(s) {
				fields[[2]string{s.Table, f.DBName}] = true
			}
		}
	}
	columns, err := c.wdb.ColumnsOf(ctx, tables...)
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
		if narrow(schema.DataType(strings.TrimSuffix(column.Type, " unsigned")), dialect, 19) || strings.HasPrefix(column.Type, "int") {
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
