package catalog

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Add lists models, prepares their schemas, and gets their worker ids.
func (c *Catalog) Add(ctx context.Context, db *gorm.DB, models []any) error {
	var errs []error
	var sources []*supply.Source
	var plain []string
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.MakePlain(db, s)
		p := c.Plan(s)
		switch {
		case len(p.Lost) > 0:
			errs = model.Distinct(s, p.Lost, errs)
			continue
		case p.Err != nil:
			errs = append(errs, p.Err)
			continue
		case len(p.fields) > 0:
			if err := c.list(p); err != nil {
				errs = append(errs, err)
				continue
			}
		case c.once("plain", s.Table, ""):
			plain = append(plain, cmp.Or(s.Name, s.Table))
		}
		if f := model.UnusedID(s); f != nil && c.once("unused", s.Table, f.DBName) {
			c.Log.Warn("uidplugin: this field is not the key, because another field has the tag primaryKey, so it gets no id and is 0 in every row; tag it uid, or uid:- if the application sets it",
				"field", s.Name+"."+f.Name, "key", strings.Join(s.PrimaryFieldDBNames, ", "))
		}
		sources = append(sources, p.sources...)
	}
	if len(plain) > 0 {
		c.Log.Info("uidplugin: these models have no uid field, so the plugin does not set their keys", "models", strings.Join(plain, ", "))
	}
	if err := errors.Join(errs...); err != nil || len(sources) == 0 || c.LookupOnly {
		return err
	}
	if !c.started {
		// OpenSegments and Start call openers later.
		sources = slices.DeleteFunc(sources, func(s *supply.Source) bool {
			if s.Opened {
				c.later = append(c.later, s)
			}
			return s.Opened
		})
	}
	if len(sources) == 0 {
		return nil
	}
	return c.supply.Ensure(ctx, db.Statement.ConnPool, sources)
}

// list lists a model, so Find loads its rows.
func (c *Catalog) list(p *Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkPrefix(p); err != nil {
		return err
	}
	c.listed[p.Schema.Table] = p
	_, public := c.publicPrefix(p)
	if public && !c.public.KeysSet() && !c.warned[warnedKeys] {
		c.warned[warnedKeys] = true
		c.Log.Warn("uidplugin: models have public keys, but SetPublicKeys was not called yet; until then such keys can be neither written nor read as texts",
			"model", p.Schema.Name)
	}
	return nil
}

// warnedKeys identifies the warning about missing public keys.
var warnedKeys = [3]string{"public keys"}

// ListedFor returns the plan of the model listed for a table, or nil.
func (c *Catalog) ListedFor(table string) *Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[table]
}

// Listed returns the plans of listed models, ordered by table.
func (c *Catalog) Listed() (all []*Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, table := range slices.Sorted(maps.Keys(c.listed)) {
		all = append(all, c.listed[table])
	}
	return all
}

// MakePlain makes the uid keys of s and its associations plain BIGINT columns, because GORM treats every single integer
// key as AUTO_INCREMENT. All users of a model share its schema, so a schema in use stays unchanged.
func (c *Catalog) MakePlain(db *gorm.DB, s *schema.Schema) {
	model.Walk(db, s, func(s *schema.Schema) {
		key := s.PrioritizedPrimaryField
		if (*c.plans.Load())[s] != nil {
			return // in use; the log has warned of its key
		}
		if key == nil || !key.AutoIncrement || len(model.UIDFields(s)) == 0 || !model.HasTag(key) {
			return
		}
		if model.WantsAutoIncrement(key) {
			return // because the tag asks for it
		}
		before := *key
		defaults := s.FieldsWithDefaultDBValue
		if !c.started {
			c.undo = append(c.undo, func() {
				key.AutoIncrement, key.HasDefaultValue, s.FieldsWithDefaultDBValue = before.AutoIncrement, before.HasDefaultValue, defaults
			})
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
