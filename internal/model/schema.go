package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
	"gorm.io/gorm/utils"
)

// OnConflict is how GORM calls the clause.
const OnConflict = "ON CONFLICT"

// Parse returns the schema of a model.
func Parse(db *gorm.DB, model any) (*schema.Schema, error) {
	stmt := &gorm.Statement{DB: db}
	if err := stmt.Parse(model); err != nil {
		return nil, fmt.Errorf("uidplugin: model %T: %w", model, err)
	}
	return stmt.Schema, nil
}

// ParseElsewhere returns the schema that GORM's migrator uses for a model when the handle names another table, as
// db.Table does. GORM shares it neither with other tables nor with creates. It returns nil if the handle names no other
// table.
func ParseElsewhere(db *gorm.DB, model any) *schema.Schema {
	s, err := Parse(db, model)
	if table := db.Statement.Table; err == nil && table != "" && table != s.Table {
		stmt := &gorm.Statement{DB: db}
		if stmt.ParseWithSpecialTableName(model, table) == nil {
			return stmt.Schema
		}
	}
	return nil
}

// WantsAutoIncrement reports whether the tag of a key asks for AUTO_INCREMENT.
func WantsAutoIncrement(key *schema.Field) bool {
	return utils.CheckTruth(key.TagSettings["AUTOINCREMENT"])
}

// Walk visits s and all schemas that GORM can reach from it when it saves
// associations, each once. s was returned by GORM's Parse.
func Walk(db *gorm.DB, s *schema.Schema, visit func(*schema.Schema)) {
	seen := map[*schema.Schema]bool{}
	var step func(*schema.Schema)
	step = func(s *schema.Schema) {
		if seen[s] {
			return
		}
		seen[s] = true
		visit(s)
		for _, r := range Relations(s) {
			for _, related := range [...]*schema.Schema{r.FieldSchema, r.JoinTable} {
				if related == nil || seen[related] || related.ModelType.Name() == "" {
					continue // GORM's own join tables have no uid fields
				}
				// Another goroutine may be parsing the related model at this moment;
				// Parse waits until it has.
				if parsed, err := Parse(db, reflect.New(related.ModelType).Interface()); err == nil {
					step(parsed)
				}
			}
		}
	}
	step(s)
}

// Relations returns the associations of a schema that GORM saves.
func Relations(s *schema.Schema) []*schema.Relationship {
	r := &s.Relationships
	all := make([]*schema.Relationship, 0, len(r.BelongsTo)+len(r.HasOne)+len(r.HasMany)+len(r.Many2Many))
	all = append(append(all, r.BelongsTo...), r.HasOne...)
	return append(append(all, r.HasMany...), r.Many2Many...)
}

// FieldOf returns a field of row, a struct. It is not valid if it is in an embedded
// struct to which the pointer is nil; GORM's ReflectValueOf would set the pointer.
func FieldOf(row reflect.Value, f *schema.Field) reflect.Value {
	for _, i := range f.StructField.Index {
		if i >= 0 {
			row = row.Field(i)
			continue
		}
		row = row.Field(-i - 1) // GORM's way to say that it is an embedded pointer
		if row.IsNil() {
			return reflect.Value{}
		}
		row = row.Elem()
	}
	return row
}

// IsEmpty reports whether an association has no rows, so that GORM saves none. A
// pointer to a zero struct has one.
func IsEmpty(v reflect.Value) bool {
	if !v.IsValid() || v.IsZero() {
		return true
	}
	v = reflect.Indirect(v)
	return v.Kind() == reflect.Slice && v.Len() == 0
}

// WithoutDefault returns a copy of s in which key, its primary key, has no default in the database. For an
// AUTO_INCREMENT key GORM overwrites the keys of maps with what it believes the database assigned. Or it appends maps
// that it read back (go-gorm/gorm#7650, #5927). It does so even if the keys were set. Without a default it leaves them
// alone.
func WithoutDefault(s *schema.Schema, key *schema.Field) *schema.Schema {
	k := *key
	k.HasDefaultValue, k.AutoIncrement = false, false
	c := CopyForInsert(s)
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

// CopyForInsert returns a copy of s that has what an INSERT needs, for one statement to change. It does not copy the
// whole struct, because a schema holds a mutex. It adds no ON CONFLICT of its own; see [Model.Conflict].
func CopyForInsert(s *schema.Schema) *schema.Schema {
	c := &schema.Schema{
		Name: s.Name, ModelType: s.ModelType, Table: s.Table, PrioritizedPrimaryField: s.PrioritizedPrimaryField,
		DBNames: s.DBNames, PrimaryFields: s.PrimaryFields, PrimaryFieldDBNames: s.PrimaryFieldDBNames,
		Fields: s.Fields, FieldsByName: maps.Clone(s.FieldsByName), FieldsByBindName: s.FieldsByBindName,
		FieldsByDBName: maps.Clone(s.FieldsByDBName), FieldsWithDefaultDBValue: s.FieldsWithDefaultDBValue,
		CreateClauses: slices.DeleteFunc(slices.Clone(s.CreateClauses), func(c clause.Interface) bool { return c.Name() == OnConflict }),
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

// uniques is [Model.Uniques].
func uniques(s *schema.Schema) (all [][]*schema.Field) {
	add := func(fields []*schema.Field) {
		if len(fields) > 0 && !slices.ContainsFunc(fields, HasTag) {
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

// AllOf are conditions that must all hold: each [clause.Where] is written as a clause of its own, in parentheses, so
// that an Or in one does not widen another. Elements may be nil, but not all of them.
type AllOf []clause.Expression

// Build implements [clause.Expression].
func (all AllOf) Build(b clause.Builder) {
	first := true
	for _, e := range all {
		where, ok := e.(clause.Where)
		if e == nil || ok && len(where.Exprs) == 0 {
			continue
		}
		if !first {
			_, _ = b.WriteString(clause.AndWithSpace)
		}
		first = false
		if ok {
			_ = b.WriteByte('(')
			copyOf(where).Build(b)
			_ = b.WriteByte(')')
		} else {
			e.Build(b)
		}
	}
}

// copyOf returns a copy of a clause to build, because GORM sorts its expressions in place then.
func copyOf(where clause.Where) clause.Where {
	exprs := slices.Clone(where.Exprs)
	if and, ok := exprs[0].(clause.AndConditions); ok && len(exprs) == 1 {
		exprs[0] = clause.AndConditions{Exprs: slices.Clone(and.Exprs)}
	}
	return clause.Where{Exprs: exprs}
}
