package catalog

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm/schema"
)

// This file serves lookups: keys of models, rows to load into, and prefixes of public ids.

// RowKey returns the uid field in the primary key that lookups use, or nil.
func (p *Plan) RowKey() *Field {
	if f := p.KeyField(); f != nil && f.PrimaryKey {
		return f
	}
	return nil
}

// NewRow returns a pointer to a zero struct of the model.
func (p *Plan) NewRow() any { return reflect.New(p.Schema.ModelType).Interface() }

// SameKey reports whether two rows have the same primary key, such as a row that a join returns twice.
func (p *Plan) SameKey(ctx context.Context, a, b model.Row) bool {
	return !slices.ContainsFunc(p.Schema.PrimaryFields, func(f *schema.Field) bool {
		x, _ := f.ValueOf(ctx, a.Struct)
		y, _ := f.ValueOf(ctx, b.Struct)
		return !reflect.DeepEqual(x, y)
	})
}

// publicPrefix returns the prefix of a model's keys, and whether they are public ids.
func (c *Catalog) publicPrefix(p *Plan) (prefix string, ok bool) {
	key := p.RowKey()
	if key == nil {
		return "", false
	}
	return c.public.Prefix(key.IndirectFieldType)
}

// HasPrefix reports whether a model's keys are public ids with the prefix.
func (c *Catalog) HasPrefix(p *Plan, prefix string) bool {
	has, ok := c.publicPrefix(p)
	return ok && has == prefix
}

// prefixChecker returns keys that are used only to validate prefixes.
var prefixChecker = sync.OnceValue(func() *publicid.Keys {
	keys, err := publicid.NewKeys([]byte("this key only checks the prefix."))
	if err != nil {
		panic(err)
	}
	return keys
})

// checkPrefix returns an error if a model's prefix is invalid or belongs to another listed model. The caller holds the
// mutex.
func (c *Catalog) checkPrefix(p *Plan) error {
	prefix, ok := c.publicPrefix(p)
	if !ok {
		return nil
	}
	key := p.RowKey()
	if _, err := prefixChecker().Codec(prefix); err != nil {
		return fmt.Errorf("%w %s.%s: %w; correct the method PublicPrefix", model.ErrField, p.Schema.Name, key.Name, err)
	}
	for _, other := range c.listed {
		if same, ok := c.publicPrefix(other); ok && same == prefix && other.RowKey().IndirectFieldType != key.IndirectFieldType {
			return fmt.Errorf("%w %s.%s: its prefix %q is also the prefix of %s, so texts of one would be read as ids of the other; return another prefix from PublicPrefix",
				model.ErrField, p.Schema.Name, key.Name, prefix, other.Schema.Name)
		}
	}
	return nil
}
