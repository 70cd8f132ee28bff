package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// databaseFlag adds the flag --database to a command that reads tables of other databases than the registry's.
func databaseFlag(c *cobra.Command, named *[]string) {
	c.Flags().StringArrayVar(named, "database", nil, "NAME=DSN: where tables of another database are; NAME as in "+
		`"uid tables --json"; repeatable`)
}

// openOthers opens the databases of --database: names and data source names.
func (a *app) openOthers(ctx context.Context, d *database, named []string) error {
	d.others = map[string]*database{}
	for _, text := range named {
		name, dsn, ok := strings.Cut(text, "=")
		if !ok || name == "" || dsn == "" {
			return errors.New("--database takes NAME=DSN, such as shard-1=mysql://user:password@host/shop")
		}
		other, err := a.connect(ctx, dsn, reads)
		if err != nil {
			return fmt.Errorf("--database %s: %w", name, err)
		}
		other.nodes, other.registry, other.layout = d.nodes, d.registry, d.layout
		d.others[name] = other
	}
	known, err := d.tableNames(ctx)
	for name := range d.others {
		of := func(t workernode.Table) bool { return t.Database == name }
		if err == nil && !slices.ContainsFunc(known, of) {
			err = fmt.Errorf("--database %s: WORKER_NODE has no table of a database %q; \"uid tables --json\" has the names", name, name)
		}
	}
	return err
}

// tableNames returns the tables in WORKER_NODE, sorted by name.
func (d *database) tableNames(ctx context.Context) (list []workernode.Table, err error) {
	err = d.list(ctx, func(rows *sql.Rows) error {
		var t workernode.Table
		err := rows.Scan(&t.Database, &t.Name)
		if t.Name != "" && t.Name != workernode.AllTables {
			list = append(list, t)
		}
		return err
	}, `SELECT DISTINCT "DATABASE_NAME", "TABLE_NAME" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL
		ORDER BY "DATABASE_NAME", "TABLE_NAME"`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return list, nil
}

// tableOf returns a table and the database to read it in: one of --database, or this one if the server has the other
// database under its name. The table has no columns if it does not exist or this user may not see it.
func (d *database) tableOf(ctx context.Context, of workernode.Table) (on *database, t table, err error) {
	if other := d.others[of.Database]; other != nil {
		t, err = other.table(ctx, of.Name)
		return other, t, err
	}
	if of.Database == "" {
		t, err = d.table(ctx, of.Name)
		return d, t, err
	}
	schema := of.Database
	if d.dialect == postgresDialect {
		if schema, err = d.schemaOf(ctx, of.Database); err != nil || schema == "" {
			return d, t, err
		}
	}
	t = table{name: of.Name, quoted: d.identifier(schema) + "." + d.identifier(of.Name)}
	t.columns, err = d.columns(ctx, schema, of.Name)
	return d, t, err
}

// schemaOf returns the schema named with WithRegistry if it is in the same PostgreSQL database; otherwise "".
func (d *database) schemaOf(ctx context.Context, name string) (schema string, err error) {
	catalog := ""
	err = d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&catalog) }, `SELECT current_database()`)
	if rest, ok := strings.CutPrefix(name, catalog+"."); ok {
		schema = rest
	} else if name == catalog {
		schema = "public"
	}
	return schema, err
}
