package core

import (
	"context"
	"reflect"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Model is a GORM model that has a uid field, as a handle knows it.
type Model struct {
	Table string         // the table's name in GORM's schema
	Key   *catalog.Field // the uid field of the primary key; nil if there is none

	core *Core
	plan *catalog.Plan
}

// Model returns a value's model. The error wraps [model.ErrNoField], or is one that a create of the model returns.
func (c *Core) Model(db *gorm.DB, value any) (*Model, error) {
	p, _, err := c.Catalog.KeyOf(db, value)
	if err != nil {
		return nil, err
	}
	return &Model{p.Schema.Table, p.RowKey(), c, p}, nil
}

// New returns a pointer to a new row.
func (m *Model) New() any { return m.plan.NewRow() }

// ID returns the id of row, which is a pointer to a struct of the model.
func (m *Model) ID(row any) int64 {
	return model.Row{Struct: reflect.ValueOf(row).Elem()}.ID(context.Background(), m.Key.Field)
}

// Column returns the column of the key, in the table of the statement.
func (m *Model) Column() clause.Column {
	return clause.Column{Table: clause.CurrentTable, Name: m.Key.DBName}
}

// Where returns db restricted to rows that meet a condition on the key. It first checks that db has only clauses
// that FindAs allows, and then adds the clauses of the parameter more.
func (m *Model) Where(ctx context.Context, db *gorm.DB, condition clause.Expression, more ...clause.Interface) *gorm.DB {
	return m.core.Where(ctx, db, m.plan, condition, more...)
}
