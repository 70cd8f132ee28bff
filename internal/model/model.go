// Package model finds, reads and sets the uid fields of GORM's models, in structs and maps. It also copies the
// parts of a schema that an INSERT needs. It does not know generators or worker ids.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// QueryChunk limits the ids of one query, because databases limit the values of a statement.
const QueryChunk = 1000

// A Model is the plugin's view of a GORM schema. It is immutable, so goroutines may share it.
type Model struct {
	Schema *schema.Schema
	Fields []*Field // its uid fields

	// MayConflict is true if a hook, or the type of a field, may add an ON CONFLICT after the ids were set.
	// Conflict is the clause that a type adds, or nil.
	MayConflict bool
	Conflict    clause.Interface

	Lost map[*schema.Relationship]error // associations that lose ids

	// Uniques returns the keys and unique indexes without uid fields. Those with uid fields hardly ever conflict.
	Uniques func() [][]*schema.Field

	// MapSchema is the schema for creates from maps, or nil if Schema works. See [WithoutDefault].
	MapSchema     *schema.Schema
	AutoIncrement bool // GORM treats the key as AUTO_INCREMENT
}

// New returns the model of a schema. If it returns an error, which wraps [ErrField], the model is valid, but its
// rows cannot be created.
func New(db *gorm.DB, s *schema.Schema, t Target) (*Model, error) {
	m := &Model{Schema: s, MayConflict: s.BeforeCreate || s.BeforeSave}
	m.Uniques = sync.OnceValue(func() [][]*schema.Field { return uniques(s) })
	for _, added := range s.CreateClauses {
		if added.Name() == OnConflict {
			m.Conflict, m.MayConflict = added, true
		}
	}
	if err := uncreated(s); err != nil {
		return m, err
	}
	for _, sf := range UIDFields(s) {
		if s.Name == "" && s.Table == db.NamingStrategy.TableName("") { // then it is only the prefix, or empty
			return m, fmt.Errorf("%w %s.%s: the struct type of its model has no name, so ids could not be resolved to a table; give the struct type a name or a method TableName",
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
		return m, errors.Join(Distinct(s, m.Lost, nil)...)
	}
	if key := s.PrioritizedPrimaryField; len(m.Fields) > 0 && key != nil && key.HasDefaultValue && key.DefaultValue == "" && HasTag(key) {
		m.MapSchema = WithoutDefault(s, key)
		m.AutoIncrement = key.AutoIncrement
	}
	return m, nil
}

// Key returns the primary key if it is a uid field, else the first uid field, or nil.
func (m *Model) Key() *Field {
	var key *Field
	for _, f := range m.Fields {
		if key == nil || f.PrimaryKey && !key.PrimaryKey {
			key = f
		}
	}
	return key
}
