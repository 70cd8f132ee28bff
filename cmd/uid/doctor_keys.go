package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// checkKeys looks at the keys of the tables that WORKER_NODE names, in the database of WORKER_NODE.
func (d doctor) checkKeys(ctx context.Context) (list []finding, err error) {
	failed := 0
	var first error
	for p := (tablePage{limit: 500}); ; {
		page, err := d.tables(ctx, p)
		if err != nil {
			return list, err
		}
		more := len(page) > p.limit
		page = page[:min(len(page), p.limit)]
		for _, t := range page {
			if t.Database != "" || t.Table == "" || t.Table == workernode.AllTables {
				continue
			}
			found, err := d.checkKey(ctx, t.Table)
			list = append(list, found...)
			if err != nil {
				failed++
				first = cmp.Or(first, err)
			}
		}
		if !more || ctx.Err() != nil {
			break
		}
		last := page[len(page)-1]
		p.after, p.database, p.table = true, last.Database, last.Table
	}
	if failed > 1 {
		first = fmt.Errorf("%w (and %d more)", first, failed-1)
	}
	return list, first
}

// checkKey looks at the key of a table.
func (d doctor) checkKey(ctx context.Context, table string) (list []finding, err error) {
	columns, err := d.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	key, ok := keyOf(columns)
	if !ok || !key.isInteger() {
		return nil, nil
	}
	if key.auto {
		list = append(list, finding{Code: codeKeyNumbered, Fix: d.plainStatement(table, key),
			Text: fmt.Sprintf("the database numbers %s.%s: a row that is inserted without the plugin gets a "+
				"number that locates to nothing, or that the plugin is about to use", table, key.name),
			Advice: "First let all that insert use the plugin. docs/migrating.md has the statements for a key that " +
				"foreign keys refer to."})
	}
	if key.isNarrow(d.dialect) {
		list = append(list, finding{Code: codeKeyNarrow, Fix: d.wideStatement(table, key),
			Text:   fmt.Sprintf("%s.%s is %s, which is too narrow for ids: creates fail", table, key.name, key.kind),
			Advice: "Foreign keys to it need the same; docs/migrating.md has the statements."})
	}
	ahead, err := d.checkLargest(ctx, table, key)
	return append(list, ahead...), err
}

// checkLargest compares the largest key of a table with the ids that are made now.
func (d doctor) checkLargest(ctx context.Context, table string, key column) ([]finding, error) {
	var largest sql.NullInt64
	err := d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&largest) },
		"SELECT MAX("+d.quote(key.name)+") FROM "+d.quote(table))
	if err != nil {
		return nil, fmt.Errorf("read the largest key of %s: %w", table, err)
	}
	// An id may be stamped up to Lead ahead, by a clock that is a little ahead itself.
	now := d.app.now().Add(time.Duration(d.registry.LeadTicks)*d.layout.Tick + time.Minute)
	above := d.layout.Above(largest.Int64, now)
	if !largest.Valid || above == nil {
		return nil, nil
	}
	return []finding{
		{
			Code: codeKeyAhead,
			Text: fmt.Sprintf("the largest key of %s is %d, above the ids that are made now: new rows sort below it, "+
				"and an id may equal an old key; %s",
				table, largest.Int64, strings.TrimPrefix(above.Error(), generator.ErrLayout.Error()+": ")),
			Advice: `Find where the key is from: "uid where" and "uid decode --all". ` +
				"docs/migrating.md says which layout is above keys of another system.",
		},
	}, nil
}

// plainStatement returns the statement after which the database no longer numbers a column.
func (d doctor) plainStatement(table string, key column) string {
	alter := "ALTER TABLE " + d.quote(table)
	switch {
	case d.dialect == postgresDialect && key.identity:
		return alter + " ALTER COLUMN " + d.quote(key.name) + " DROP IDENTITY"
	case d.dialect == postgresDialect:
		return alter + " ALTER COLUMN " + d.quote(key.name) + " DROP DEFAULT"
	}
	return alter + " MODIFY " + d.quote(key.name) + " BIGINT" + unsigned(key) + " NOT NULL"
}

// wideStatement returns the statement after which a column can hold ids. It leaves the numbering as it is.
func (d doctor) wideStatement(table string, key column) string {
	alter := "ALTER TABLE " + d.quote(table)
	if d.dialect == postgresDialect {
		return alter + " ALTER COLUMN " + d.quote(key.name) + " TYPE BIGINT"
	}
	numbered := ""
	if key.auto {
		numbered = " AUTO_INCREMENT"
	}
	return alter + " MODIFY " + d.quote(key.name) + " BIGINT" + unsigned(key) + " NOT NULL" + numbered
}

func unsigned(key column) string {
	if strings.Contains(strings.ToLower(key.kind), "unsigned") {
		return " UNSIGNED"
	}
	return ""
}
