package uidplugin

import (
	"context"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Worker ids are scarce, so a table gets one when the first of its rows needs an
// id, and not before. But GORM creates associated rows inside the transaction of
// the row that they belong to, where a second connection may not be had; so all
// that a statement is going to need is found out before it begins, from the rows
// that it is given.

// A search collects the sources without a generator that rows need.
type search struct {
	core  *core
	ctx   context.Context
	found map[*source]bool
	seen  map[visited]bool // rows may refer to each other in circles
}

// visited is an association of a row.
type visited struct {
	address  uintptr
	relation *schema.Relationship
}

// needed returns the sources without a generator that a statement needs: for the
// uid fields of its own rows, if create is set, and for those of associated rows.
func (c *core) needed(db *gorm.DB, p *plan, create bool) []*source {
	stmt := db.Statement
	s := search{core: c, ctx: stmt.Context} // its maps are made when they are needed, which is rare
	s.rows(stmt.ReflectValue, p, create)
	if !create && stmt.Model != nil {
		s.rows(reflect.ValueOf(stmt.Model), p, false) // what an UPDATE saves the associations of
	}
	if len(s.found) == 0 {
		return nil
	}
	sources := make([]*source, 0, len(s.found))
	for _, source := range p.sources { // in an order that does not change from run to run
		if s.found[source] {
			sources = append(sources, source)
		}
	}
	return sources
}

// rows looks at what is, or holds, rows of the plan's model. Anything else is
// GORM's to complain about.
func (s *search) rows(v reflect.Value, p *plan, create bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.rows(v.Index(i), p, create)
		}
	case reflect.Map:
		if m, ok := v.Interface().(map[string]any); ok && m != nil {
			s.row(row{m: m}, p, create)
		}
	case reflect.Struct:
		if v.Type() != p.schema.ModelType {
			return
		}
		s.row(row{v: v}, p, create)
	}
}

func (s *search) row(r row, p *plan, create bool) {
	if p.schema.BeforeCreate || p.schema.BeforeSave || !create && p.schema.BeforeUpdate {
		s.all(p) // a hook may add and zero what it likes
		return
	}
	if create {
		for _, f := range p.fields {
			if _, zero := r.value(s.ctx, f.Field); zero {
				s.add(f.source)
			}
		}
	}
	for _, relation := range p.relations {
		if r.m != nil {
			if _, ok := r.m[relation.Name]; ok {
				s.all(p)
			}
			continue
		}
		if _, zero := relation.Field.ValueOf(s.ctx, r.v); zero || !s.first(r.v, relation) {
			continue
		}
		if related := s.core.related(relation.FieldSchema); related != nil && !related.ready.Load() {
			s.rows(relation.Field.ReflectValueOf(s.ctx, r.v), related, true)
		}
		if join := s.core.related(relation.JoinTable); join != nil {
			for _, f := range join.fields {
				s.add(f.source)
			}
		}
	}
}

// first tells whether an association of a row comes up for the first time.
func (s *search) first(row reflect.Value, relation *schema.Relationship) bool {
	if !row.CanAddr() {
		return true
	}
	at := visited{row.UnsafeAddr(), relation}
	if s.seen[at] {
		return false
	}
	if s.seen == nil {
		s.seen = map[visited]bool{}
	}
	s.seen[at] = true
	return true
}

func (s *search) all(p *plan) {
	for _, source := range p.sources {
		s.add(source)
	}
}

func (s *search) add(from *source) {
	if from.made.Load() != nil {
		return
	}
	if s.found == nil {
		s.found = map[*source]bool{}
	}
	s.found[from] = true
}

// related returns the plan of a related schema; nil if it is one of GORM's own
// join tables, or unusable, which a create of it will say.
func (c *core) related(s *schema.Schema) *plan {
	if s == nil || s.ModelType.Name() == "" {
		return nil
	}
	parsed, err := parse(c.db, reflect.New(s.ModelType).Interface())
	if err != nil {
		return nil
	}
	return c.plan(parsed)
}

// relations returns the associations that GORM saves.
func relations(s *schema.Schema) []*schema.Relationship {
	r := &s.Relationships
	all := make([]*schema.Relationship, 0, len(r.BelongsTo)+len(r.HasOne)+len(r.HasMany)+len(r.Many2Many))
	all = append(append(all, r.BelongsTo...), r.HasOne...)
	return append(append(all, r.HasMany...), r.Many2Many...)
}
