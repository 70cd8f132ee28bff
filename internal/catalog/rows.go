package catalog

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm/schema"
)

// RowKey returns the uid field that lookups use, if it belongs to the primary key, or nil.
func (p *Plan) RowKey() *Field {
	if f := p.KeyField(); f != nil && f.PrimaryKey {
		return f
	}
	return nil
}

// NewRow returns a pointer to a zero struct of the model.
func (p *Plan) NewRow() any { return reflect.New(p.Schema.ModelType).Interface() }

// SameKey reports whether two rows have the same primary key, for example because a join returned one row twice.
func (p *Plan) SameKey(ctx context.Context, a, b model.Row) bool {
	return !slices.ContainsFunc(p.Schema.PrimaryFields, func(f *schema.Field) bool {
		x, _ := f.ValueOf(ctx, a.Struct)
		y, _ := f.ValueOf(ctx, b.Struct)
		return !reflect.DeepEqual(x, y)
	})
}

// kindOf returns the field of RowKey, and what kind of key its type is.
func (p *Plan) kindOf() (key *Field, kind model.KeyKind) {
	if key = p.RowKey(); key != nil {
		kind = model.KindOf(key.IndirectFieldType)
	}
	return key, kind
}

// checkKind returns an error if the prefix of the model's key type is invalid, or if a listed model has keys of
// another type with the same prefix. The caller holds c.mu.
func (c *Catalog) checkKind(p *Plan) error {
	key, kind := p.kindOf()
	if kind.Err != nil {
		return fmt.Errorf("%w %s.%s: %w", model.ErrField, p.Schema.Name, key.Name, kind.Err)
	}
	if kind.Texts == "" {
		return nil
	}
	for _, other := range c.listed {
		if k, same := other.kindOf(); same.Texts == kind.Texts && k.IndirectFieldType != key.IndirectFieldType {
			return fmt.Errorf("%w %s.%s: its texts begin with %q, as the texts of %s do, so they would be read as ids of the wrong type; give one of the types another prefix",
				model.ErrField, p.Schema.Name, key.Name, kind.Texts, other.Schema.Name)
		}
	}
	return nil
}
