// wing: segment

package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
)

// A tag is a row of leaf_alloc, the table of segments.
type tag struct {
	database, table, name string
	next                  int64
}

func (d *DB) tags(ctx context.Context) (list []tag, err error) {
	names, byName := d.databases()
	for _, database := range names {
		for _, name := range []string{segment.DefaultTable, strings.ToUpper(segment.DefaultTable)} {
			columns, err := byName[database].columns(ctx, byName[database].schema(), name)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(columns, func(c column) bool { return c.Name == "biz_tag" }) {
				continue
			}
			err = byName[database].SQL.Query(ctx, func(rows *sql.Rows) error {
				t := tag{database: database, table: name}
				err := rows.Scan(&t.name, &t.next)
				list = append(list, t)
				return err
			}, "SELECT biz_tag, max_id FROM "+byName[database].own(name)+" ORDER BY biz_tag")
			if err != nil {
				return nil, fmt.Errorf("read the tags of %s: %w", name, err)
			}
			if d.SQL.Dialect() == sqlite {
				break // for SQLite both names are the same table
			}
		}
	}
	return list, nil
}

// tableOfTag returns the table whose keys come from a tag. The tag has the name TABLE or TABLE.COLUMN.
func (d *DB) tableOfTag(ctx context.Context, source tag) (workernode.Table, bool, error) {
	_, byName := d.databases()
	name, column, _ := strings.Cut(source.name, ".")
	for _, name := range []string{source.name, name} {
		t, err := byName[source.database].table(ctx, name)
		if err != nil {
			return workernode.Table{}, false, err
		}
		if key, ok := keyOf(t.columns); ok && key.isInteger() && (name == source.name || key.Name == column) {
			return workernode.Table{Database: source.database, Name: name}, true, nil
		}
	}
	return workernode.Table{}, false, nil
}

// planSegments returns steps that name the tables of segments, because these tables stay.
func (d *DB) planSegments(ctx context.Context, _ []workernode.Table) (steps []RemovalStep, err error) {
	tags, err := d.tags(ctx)
	_, home := d.databases()
	for i, t := range tags {
		if i > 0 && tags[i-1].database == t.database && tags[i-1].table == t.table {
			continue
		}
		steps = append(steps, RemovalStep{Database: t.database, Left: true,
			Text: fmt.Sprintf("%s stays, because other services may take numbers from it. If none does: DROP TABLE %s",
				t.table, home[t.database].own(t.table))})
	}
	return steps, err
}

// eachSegment calls add() with each table whose keys come from a segment, and with the segment's first free number.
func (d *DB) eachSegment(ctx context.Context, add func(entry workernode.Table, free int64) error) error {
	tags, err := d.tags(ctx)
	if err != nil {
		return err
	}
	for _, t := range tags {
		entry, ok, err := d.tableOfTag(ctx, t)
		if err == nil && ok {
			err = add(entry, t.next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseSegment returns an error if a tag has the name of a table or of its key.
func (d *DB) refuseSegment(ctx context.Context, entry workernode.Table, key column, advice string) error {
	for _, name := range []string{segment.DefaultTable, strings.ToUpper(segment.DefaultTable)} {
		columns, err := d.columns(ctx, d.schema(), name)
		if err != nil {
			return err
		}
		if len(columns) == 0 {
			continue
		}
		tag := ""
		err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&tag) },
			"SELECT biz_tag FROM "+d.own(name)+" WHERE biz_tag IN (?, ?)", entry.Name, entry.Name+"."+key.Name)
		if err != nil {
			return err
		}
		if tag != "" {
			return fmt.Errorf("the keys of %s come from segments, because %s has the tag %q; %s", entry, name, tag, advice)
		}
	}
	return nil
}

// segmentNotes adds notes about the tags with the old name of a table.
func (d *DB) segmentNotes(ctx context.Context, r Renaming, notes []string) ([]string, error) {
	tags, err := d.tags(ctx)
	for _, t := range tags {
		if t.database == r.Database && (t.name == r.From || strings.HasPrefix(t.name, r.From+".")) {
			notes = append(notes, fmt.Sprintf("%s has the tag %q. Keep it, and name it in the model: gorm:\"uid:segment:%s\"",
				t.table, t.name, t.name))
		}
	}
	return notes, err
}
