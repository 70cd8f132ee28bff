package uidplugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// excludeRegistry makes sure that no registry of this database gives out the worker ids of WithWorkerID. Registries
// begin above MaxFixedWorkerID, so worker ids up to it need no tables. Larger ones are claimed in the tables.
func (s *shared) excludeRegistry(db *gorm.DB) error {
	largest, makes := s.LargestFixed()
	if !makes {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	if largest > s.Layout.MaxFixedWorkerID() {
		return s.fixedError(claimFixed(ctx, s.Config, db, largest))
	}
	d, err := locateTables(ctx, s.Config, db)
	if err == nil {
		err = workernode.New(d).CheckFixed(ctx, s.Layout, largest)
	}
	if err == nil || errors.Is(err, workernode.ErrFixed) || errors.Is(err, workernode.ErrLayoutMismatch) {
		return s.fixedError(err)
	}
	s.Log.Warn("uidplugin: WORKER_REGISTRY could not be read; another process may get the worker id of WithWorkerID, too,"+
		" if the table is of an earlier build, or if UidGenerator uses this database", "worker_id", s.WorkerID, "error", err)
	return nil
}

// fixedError adds the option to an error of the registry.
func (s *shared) fixedError(err error) error {
	switch {
	case errors.Is(err, workernode.ErrFixed):
		return fmt.Errorf("%w: WithWorkerID(%d): %w", ErrOption, s.WorkerID, err)
	case err != nil:
		return fmt.Errorf("uidplugin: WithWorkerID(%d): %w", s.WorkerID, err)
	}
	return nil
}

// claimFixed creates or checks the tables on db, and moves the first worker id of the registry above largest.
func claimFixed(ctx context.Context, cfg *config.Config, db *gorm.DB, largest int64) error {
	d, err := locateTables(ctx, cfg, db)
	if err != nil {
		return err
	}
	if err := prepareTables(ctx, cfg, db, d); err != nil {
		return err
	}
	return workernode.New(d).ClaimFixed(ctx, cfg.Layout, largest)
}

// prepareTables creates the tables of d in the database of db. With NoMigration it only checks them.
func prepareTables(ctx context.Context, cfg *config.Config, db *gorm.DB, d *sqldb.DB) (err error) {
	nodes := workernode.New(d)
	place := func(p *sqldb.Place) {
		p.Located = d
		p.Before = func(ctx context.Context) error { return nodes.MayChange(ctx, cfg.Layout, cfg.Region) }
	}
	if cfg.NoMigration {
		err = migrations.Check(ctx, db, place)
	} else {
		err = migrations.Up(ctx, db, place)
	}
	if err != nil {
		return err
	}
	// Check this last, because it reads a table, and a new database had no tables before.
	if err := d.OneDatabase(ctx, workernode.NodeTable); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return nil
}
