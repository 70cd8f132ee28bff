package uidplugin

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// Register lists models, as [WithModels] does. It gets worker ids for them and their associations, and opens their
// segments and other sources. AutoMigrate then creates plain BIGINT keys, and Find loads rows of these models, but not
// of their associations. Models without a uid field keep their keys; the log names them once.
//
// You should call it before the models and their associations are used, because schemas in use stay unchanged.
func (p *Plugin) Register(ctx context.Context, models ...any) error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	if err := s.add(ctx, p.db, models); err != nil {
		return err
	}
	s.inspect(ctx, p.db, models)
	return nil
}

// AutoMigrate registers models and then calls GORM's AutoMigrate, so keys become plain BIGINT columns. Like Register,
// it must come before the models are used. From(db.Table(name)).AutoMigrate creates a table of that name, also with a
// plain key.
func (p *Plugin) AutoMigrate(models ...any) error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	if err := s.add(p.db.Statement.Context, p.db, models); err != nil {
		return err
	}
	if err := p.db.AutoMigrate(models...); err != nil {
		return err
	}
	s.inspect(p.db.Statement.Context, p.db, models) // the database may still number existing keys
	return nil
}

// add lists models. First it makes their uid keys plain, so that AutoMigrate creates BIGINT columns.
func (s *shared) add(ctx context.Context, db *gorm.DB, models []any) error {
	s.adopt.MakePlain(db, models)
	return s.catalog.Add(ctx, db, models)
}

// inspect looks at the tables of models and of their associations.
func (s *shared) inspect(ctx context.Context, db *gorm.DB, models []any) {
	s.narrow.Note(db, models)
	if s.tables == nil || len(models) == 0 || s.LookupOnly {
		return
	}
	columns, err := inspect.ColumnsOfModels(ctx, s.tables, s.catalog, db, models)
	if err != nil {
		s.Log.Warn("uidplugin: the tables of the models could not be inspected; ids get no gaps, even if the database numbers a key",
			"error", err)
		return
	}
	s.adopt.Inspect(ctx, db, models, columns)
	s.narrow.Inspect(columns)
}

// NextID returns an id for a new row of a model. The id is for the primary key if that is a uid field, otherwise for
// the first uid field. model is a pointer to a struct. A row created with the id keeps it.
func (p *Plugin) NextID(ctx context.Context, model any) (ID, error) {
	s, err := p.initialized()
	if err != nil {
		return 0, err
	}
	_, f, err := s.catalog.KeyOf(p.db, model)
	if err != nil {
		return 0, err
	}
	if err := s.supply.Ensure(ctx, p.db.Statement.ConnPool, []*supply.Source{f.Source}); err != nil {
		return 0, err
	}
	id, err := f.Source.Next(ctx, nil)
	return ID(id), err
}
