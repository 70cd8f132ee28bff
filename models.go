package uidplugin

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

// Register does for models what [WithModels] does. It gets worker ids for them and for the models they are associated
// with, and opens their segments and other sources. It makes AutoMigrate create plain BIGINT keys. It lets Find load
// rows of models, but not of associated ones. Models without a uid field keep their keys; the log names them once.
//
// As it changes what GORM knows of a model, it must come before the model, and those it is associated with, are used. A
// model that is in use stays unchanged.
func (p *Plugin) Register(ctx context.Context, models ...any) error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	if err := s.catalog.addModels(ctx, p.db, models); err != nil {
		return err
	}
	s.catalog.inspect(ctx, p.db, models)
	return nil
}

// AutoMigrate registers models. Then it calls GORM's AutoMigrate, so that keys become plain BIGINT columns. Like
// Register, it must come before the models are used.
//
// On the plugin of From(db.Table(name)) it creates the table of that name, with a plain key as well.
func (p *Plugin) AutoMigrate(models ...any) error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	if err := s.catalog.addModels(p.db.Statement.Context, p.db, models); err != nil {
		return err
	}
	for _, m := range models {
		if elsewhere := model.ParseElsewhere(p.db, m); elsewhere != nil {
			s.catalog.makePlain(p.db, elsewhere)
		}
	}
	if err := p.db.AutoMigrate(models...); err != nil {
		return err
	}
	s.catalog.inspect(p.db.Statement.Context, p.db, models) // GORM leaves keys that are there as they are
	return nil
}

// addModels prepares models for use.
func (c *catalog) addModels(ctx context.Context, db *gorm.DB, models []any) error {
	var errs []error
	var sources []*supply.Source
	var plain []string
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.makePlain(db, s)
		p := c.plan(s)
		switch {
		case len(p.Lost) > 0:
			errs = model.Distinct(s, p.Lost, errs)
			continue
		case p.err != nil:
			errs = append(errs, p.err)
			continue
		case len(p.fields) > 0:
			if err := c.list(p); err != nil {
				errs = append(errs, err)
				continue
			}
		case c.once("plain", s.Table, ""):
			plain = append(plain, cmp.Or(s.Name, s.Table))
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
		// Openers are called by OpenSegments and Start.
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

// list lists a model, so that Find loads its rows.
func (c *catalog) list(p *plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := p.checkPrefix(c.listed); err != nil {
		return err
	}
	c.listed[p.Schema.Table] = p
	_, public := p.publicPrefix()
	if public && publicKeys.Load() == nil && !c.warned[warnedKeys] {
		c.warned[warnedKeys] = true
		c.Log.Warn("uidplugin: models have public keys, and SetPublicKeys was not called yet: until it is, such keys can be neither written as texts nor read",
			"model", p.Schema.Name)
	}
	return nil
}

// warnedKeys is the warning that there are no public keys.
var warnedKeys = [3]string{"public keys"}

// NextID returns the id that a new row of a model may have: of its primary key, if
// that is a uid field, else of its first uid field. model is a pointer to a
// struct. A row that is then created with the id keeps it.
func (p *Plugin) NextID(ctx context.Context, model any) (ID, error) {
	s, err := p.initialized()
	if err != nil {
		return 0, err
	}
	_, f, err := s.catalog.keyOf(p.db, model)
	if err != nil {
		return 0, err
	}
	if err := s.supply.Ensure(ctx, p.db.Statement.ConnPool, []*supply.Source{f.source}); err != nil {
		return 0, err
	}
	id, err := f.source.Next(ctx, nil)
	return ID(id), err
}

// listedFor returns the plan of the model that was listed for a table; nil if no model was.
func (c *catalog) listedFor(table string) *plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[table]
}

// listedModels returns the plans of the models that were listed, in the order of their tables.
func (c *catalog) listedModels() (all []*plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, table := range slices.Sorted(maps.Keys(c.listed)) {
		all = append(all, c.listed[table])
	}
	return all
}

// makePlain makes the uid keys of s, and of what it is associated with, plain BIGINT columns: GORM takes every single
// integer key for AUTO_INCREMENT. All users of the model share the schema, so one that is in use stays unchanged.
func (c *catalog) makePlain(db *gorm.DB, s *schema.Schema) {
	model.Walk(db, s, func(s *schema.Schema) {
		key := s.PrioritizedPrimaryField
		if (*c.plans.Load())[s] != nil {
			return // in use; the log has warned of its key
		}
		if key == nil || !key.AutoIncrement || len(model.UIDFields(s)) == 0 || !model.HasTag(key) {
			return
		}
		if model.WantsAutoIncrement(key) {
			return // as the model's author says
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
