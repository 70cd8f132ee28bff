package model

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
	"gorm.io/gorm/utils"
)

// OnConflict is GORM's name of the clause.
const OnConflict = "ON CONFLICT"

// Parse returns the schema of a model.
func Parse(db *gorm.DB, model any) (*schema.Schema, error) {
	stmt := &gorm.Statement{DB: db}
	err := stmt.Parse(model)
	switch {
	case err == nil:
		return stmt.Schema, nil
	case errors.Is(err, schema.ErrUnsupportedDataType) && !isModel(reflect.TypeOf(model)):
		// The text of GORM's error shows the address if model is a pointer.
		return nil, fmt.Errorf("uidplugin: model %T: %w: pass a pointer to the struct of a model, such as &Order{}",
			model, schema.ErrUnsupportedDataType)
	}
	return nil, fmt.Errorf("uidplugin: model %T: %w", model, err)
}

// isModel reports whether GORM takes values of t for a model or a list of models.
func isModel(t reflect.Type) bool {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array}, t.Kind()) {
		t = t.Elem()
	}
	return t != nil && t.Kind() == reflect.Struct
}

// ParseElsewhere returns the schema that GORM's migrator uses if the handle names another table by db.Table, or
// else nil. GORM's creates use the schema of [Parse] even then.
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

// Walk visits s, which must come from GORM's Parse, and all schemas whose rows GORM may save with it, each once.
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
				// Another goroutine may be parsing the related model. Parse waits for it.
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

// FieldOf returns a field of a struct, or the zero Value if the field is behind an embedded pointer that is nil.
// GORM's ReflectValueOf would set this pointer.
func FieldOf(row reflect.Value, f *schema.Field) reflect.Value {
	for _, i := range f.StructField.Index {
		if i >= 0 {
			row = row.Field(i)
			continue
		}
		row = row.Field(-i - 1) // GORM encodes an embedded pointer as a negative index
		if row.IsNil() {
			return reflect.Value{}
		}
		row = row.Elem()
	}
	return row
}

// IsEmpty reports whether an association has no rows, so that GORM saves none. A pointer to a zero struct is a row.
func IsEmpty(v reflect.Value) bool {
	if !v.IsValid() || v.IsZero() {
		return true
	}
	v = reflect.Indirect(v)
	return v.Kind() == reflect.Slice && v.Len() == 0
}

// WithoutDefault returns a copy of s in which key, the primary key, has no database default. In a create from maps,
// GORM otherwise overwrites an AUTO_INCREMENT key with its guess of the assigned number, or appends the maps that
// it read back (go-gorm/gorm#7650, #5927), even if the keys were set.
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

// CopyForInsert returns a copy of s for the INSERT of one statement, which may change the copy. It copies field by
// field, because a schema holds a mutex. It drops ON CONFLICT clauses; see [Model.Conflict].
func CopyForInsert(s *schema.Schema) *schema.Schema {
	c := &schema.Schema{
		Name: s.Name, ModelType: s.ModelType, Table: s.Table, PrioritizedPrimaryField: s.PrioritizedPrimaryField,
		DBNames: s.DBNames, PrimaryFields: s.PrimaryFields, PrimaryFieldDBNames: s.PrimaryFieldDBNames,
		Fields: s.Fields, FieldsByName: maps.Clone(s.FieldsByName), FieldsByBindName: s.FieldsByBindName,
		FieldsByDBName: maps.Clone(s.FieldsByDBName), FieldsWithDefaultDBValue: s.FieldsWithDefaultDBValue,
		CreateClauses: slices.DeleteFunc(slices.Clone(s.CreateClauses), func(c clause.Interface) bool { return c.Name() == OnConflict }),
		BeforeCreate:  s.BeforeCreate, AfterCreate: s.AfterCreate, BeforeSave: s.BeforeSave, AfterSave: s.AfterSave,
	}
	// Callbacks of other plugins may read the relationships.
	r, from := &c.Relationships, &s.Relationships
	from.Mux.RLock()
	defer from.Mux.RUnlock()
	r.HasOne, r.BelongsTo, r.HasMany, r.Many2Many = from.HasOne, from.BelongsTo, from.HasMany, from.Many2Many
	r.Relations, r.EmbeddedRelations = maps.Clone(from.Relations), from.EmbeddedRelations
	return c
}

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

// AllOf joins conditions with AND. It builds each [clause.Where] on its own and in parentheses, because otherwise a
// row that meets one side of an Or need not meet the other conditions. Elements may be nil, but not all of them.
type AllOf []clause.Expression

// Build implements [clause.Expression].
func (conditions AllOf) Build(b clause.Builder) {
	first := true
	for _, e := range conditions {
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

// copyOf copies a clause, because GORM sorts the expressions in place while it builds.
func copyOf(where clause.Where) clause.Where {
	exprs := slices.Clone(where.Exprs)
	if and, ok := exprs[0].(clause.AndConditions); ok && len(exprs) == 1 {
		exprs[0] = clause.AndConditions{Exprs: slices.Clone(and.Exprs)}
	}
	return clause.Where{Exprs: exprs}
}
