package uidplugin

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Worker ids are scarce, so a table gets one when the first of its rows needs an id, and not before. But GORM creates
// associated rows inside the transaction of the row that they belong to. A second connection may not be available
// there. So the plugin finds what a statement is going to need before it begins, from the rows that it is given.

// A search collects the sources without a generator that rows need.
type search struct {
	catalog *catalog
	ctx     context.Context
	found   map[*supply.Source]bool
	seen    map[visited]bool // rows may refer to each other in circles
}

// visited is an association of a row.
type visited struct {
	address  uintptr
	relation *schema.Relationship
}

// neededByCreate returns the sources without a generator that a create needs: for the uid fields of its rows, and for
// those of associated rows.
func (c *catalog) neededByCreate(db *gorm.DB, p *plan) []*supply.Source {
	s := search{catalog: c, ctx: db.Statement.Context} // its maps are made when they are needed, which is rare
	s.rows(db.Statement.ReflectValue, p, s.createdRow)
	return s.result(p)
}

// neededByUpdate returns the sources without a generator that an update needs: for the uid fields of associated rows.
func (c *catalog) neededByUpdate(db *gorm.DB, p *plan) []*supply.Source {
	s := search{catalog: c, ctx: db.Statement.Context}
	s.rows(db.Statement.ReflectValue, p, s.updatedRow)
	if db.Statement.Model != nil {
		s.rows(reflect.ValueOf(db.Statement.Model), p, s.updatedRow) // what an UPDATE saves the associations of
	}
	return s.result(p)
}

// result returns what was found, in an order that does not change from run to run.
func (s *search) result(p *plan) []*supply.Source {
	if len(s.found) == 0 {
		return nil
	}
	sources := make([]*supply.Source, 0, len(s.found))
	for _, source := range p.sources {
		if s.found[source] {
			sources = append(sources, source)
		}
	}
	return sources
}

// rows visits what is, or holds, rows of the plan's model. GORM reports anything else.
func (s *search) rows(v reflect.Value, p *plan, visit func(model.Row, *plan)) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.rows(v.Index(i), p, visit)
		}
	case reflect.Map:
		if m, ok := v.Interface().(map[string]any); ok && m != nil {
			visit(model.Row{Map: m}, p)
		}
	case reflect.Struct:
		if v.Type() == p.Schema.ModelType {
			visit(model.Row{Struct: v}, p)
		}
	}
}

// createdRow looks at a row that is created.
func (s *search) createdRow(r model.Row, p *plan) {
	if p.Schema.BeforeCreate || p.Schema.BeforeSave {
		s.all(p) // a hook may add and zero anything
		return
	}
	for _, f := range p.fields {
		if !f.source.Ready() && lacks(s.ctx, r, f) {
			s.add(f.source)
		}
	}
	s.associated(r, p)
}

// updatedRow looks at a row that is updated.
func (s *search) updatedRow(r model.Row, p *plan) {
	if p.Schema.BeforeCreate || p.Schema.BeforeSave || p.Schema.BeforeUpdate {
		s.all(p)
		return
	}
	s.associated(r, p)
}

// associated looks at the rows that are saved along with a row.
func (s *search) associated(r model.Row, p *plan) {
	for i := range p.relations {
		a := &p.relations[i]
		if r.Map != nil {
			if _, ok := r.Map[a.Name]; ok {
				s.all(p)
			}
			continue
		}
		if a.ready() {
			continue
		}
		v := model.FieldOf(r.Struct, a.Field)
		if model.IsEmpty(v) || !s.first(r.Struct, a.Relationship) {
			continue
		}
		if related := s.catalog.planOf(a.FieldSchema, &a.related); related != nil && !related.ready.Load() {
			s.rows(v, related, s.createdRow)
		}
		if join := s.catalog.planOf(a.JoinTable, &a.join); join != nil {
			for _, f := range join.fields {
				s.add(f.source)
			}
		}
	}
}

// lacks reports whether a uid field of a row is zero.
func lacks(ctx context.Context, r model.Row, f *field) (zero bool) {
	if r.Map != nil {
		_, zero = r.Value(ctx, f.Field.Field)
	} else {
		_, zero = f.Look(ctx, r.Struct)
	}
	return zero
}

// first reports whether a search meets an association of a row for the first time.
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

func (s *search) add(from *supply.Source) {
	if from.Ready() {
		return
	}
	if s.found == nil {
		s.found = map[*supply.Source]bool{}
	}
	s.found[from] = true
}

// An association is one that GORM saves along with a row.
type association struct {
	*schema.Relationship

	// related and join are the plans of FieldSchema and JoinTable. They are nil until a row needs them, and where
	// planOf returns nil. Once set they stay.
	related, join atomic.Pointer[plan]
}

// associations returns the associations of a schema.
func associations(s *schema.Schema) []association {
	all := model.Relations(s)
	list := make([]association, len(all))
	for i, r := range all {
		list[i].Relationship = r
	}
	return list
}

// ready reports whether no row of the association or of its join table can need a worker id any more. It may report
// false although that is so.
func (a *association) ready() bool {
	related := a.related.Load()
	if related == nil || !related.ready.Load() {
		return false
	}
	if !planned(a.JoinTable) {
		return true
	}
	join := a.join.Load()
	return join != nil && !slices.ContainsFunc(join.fields, func(f *field) bool { return !f.source.Ready() })
}

// planned reports whether there can be a plan of a schema. One of GORM's own join tables, whose types have no names,
// has no plan.
func planned(s *schema.Schema) bool { return s != nil && s.ModelType.Name() != "" }

// planOf returns the plan of a schema of an association, and keeps it in kept. It returns nil for a schema without a
// plan and for an unusable model, which a create of it will report. Goroutines that call it at the same time get the
// same plan.
func (c *catalog) planOf(s *schema.Schema, kept *atomic.Pointer[plan]) *plan {
	if p := kept.Load(); p != nil {
		return p
	}
	if !planned(s) {
		return nil
	}
	parsed, err := model.Parse(c.db, reflect.New(s.ModelType).Interface())
	if err != nil {
		return nil
	}
	p := c.plan(parsed)
	kept.Store(p)
	return p
}
