// Package model knows the uid fields of GORM's models: which fields have the tag, how they are read and set in structs
// and maps, and what of a schema an INSERT needs. It knows no generators, no worker ids, and no outcomes of statements.
package model

import (
	"cmp"
	"fmt"
	"sync"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// QueryChunk is how many ids a query has at most. It is below the number of values that databases take.
const QueryChunk = 1000

// A Model is what the plugin knows about one of GORM's schemas. It is created once, and then only read.
type Model struct {
	Schema *schema.Schema
	Fields []*Field // with the tag uid

	// MayConflict reports that a hook, or the type of a field, may add an ON CONFLICT after the ids were set.
	// Conflict is the one that comes with a type; it may be nil.
	MayConflict bool
	Conflict    clause.Interface

	Lost map[*schema.Relationship]error // associations that lose ids

	// Uniques returns the keys and unique indexes that the model declares, except those with uid fields. A conflict is
	// hardly ever about these.
	Uniques func() [][]*schema.Field

	// MapSchema is the schema for a create from maps; nil if Schema works as well. See [WithoutDefault].
	MapSchema     *schema.Schema
	AutoIncrement bool // the key is one that GORM takes for AUTO_INCREMENT
}

// New returns the model of a schema. An error, which wraps [ErrField], says why no row can be created; there is a model
// even then.
func New(db *gorm.DB, s *schema.Schema, t Target) (*Model, error) {
	m := &Model{Schema: s, MayConflict: s.BeforeCreate || s.BeforeSave}
	m.Uniques = sync.OnceValue(func() [][]*schema.Field { return uniques(s) })
	for _, added := range s.CreateClauses {
		if added.Name() == OnConflict {
			m.Conflict, m.MayConflict = added, true
		}
	}
	for _, sf := range UIDFields(s) {
		if s.Name == "" && s.Table == db.NamingStrategy.TableName("") { // which may be a prefix
			return m, fmt.Errorf("%w %s.%s: its model has no name, so it has no table of its own that an id could resolve to; give the struct type a name or a method TableName",
				ErrField, cmp.Or(s.Name, "struct"), sf.Name)
		}
		f, err := NewField(sf, t)
		if err != nil {
			return m, err
		}
		m.Fields = append(m.Fields, f)
	}
	m.Lost = CheckForeignKeys(s, t)
	if len(m.Lost) > 0 {
		return m, JoinErrors(s, m.Lost)
	}
	if key := s.PrioritizedPrimaryField; len(m.Fields) > 0 && key != nil && key.HasDefaultValue && key.DefaultValue == "" && HasTag(key) {
		m.MapSchema = WithoutDefault(s, key)
		m.AutoIncrement = key.AutoIncrement
	}
	return m, nil
}

// Key returns the primary key of the model if that is a uid field, else its first uid field. It returns nil if the
// model has no uid field.
func (m *Model) Key() *Field {
	var key *Field
	for _, f := range m.Fields {
		if key == nil || f.PrimaryKey && !key.PrimaryKey {
			key = f
		}
	}
	return key
}
