package paths_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// number returns the number that a key is.
func number[K key](k K) int64 { return parsed(written(k)) }

// keyFor returns a number as a key.
func keyFor[K key](n int64) K {
	var k any
	switch any(*new(K)).(type) {
	case int64:
		k = n
	case uint64:
		k = uint64(n)
	case string:
		k = strconv.FormatInt(n, 10)
	case uidplugin.ID:
		k = uidplugin.ID(n)
	case *int64:
		k = &n
	}
	return k.(K)
}

// written writes a value as the database has it.
func written(v any) string {
	if valuer, ok := v.(driver.Valuer); ok {
		v, _ = valuer.Value()
	}
	if rv := reflect.Indirect(reflect.ValueOf(v)); rv.IsValid() {
		return fmt.Sprint(rv.Interface())
	}
	return ""
}

func parsed(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// count returns how many rows each table has.
func (l *lane[K]) count(t *testing.T) []int64 {
	t.Helper()
	counts := make([]int64, len(l.tables))
	scan := make([]any, len(counts))
	var query []string
	for i, table := range l.tables {
		scan[i] = &counts[i]
		query = append(query, "(SELECT count(*) FROM "+l.without.Statement.Quote(table)+")")
	}
	testkit.Must(t, l.without.Raw("SELECT "+strings.Join(query, ", ")).Row().Scan(scan...))
	return counts
}

// assignLarge makes the database assign keys that are larger than any of our ids, so that the test can tell them
// apart.
func (l *lane[K]) assignLarge(t *testing.T, table, column string) {
	t.Helper()
	var err error
	if l.Name == "postgres" {
		err = l.without.Exec("SELECT setval(pg_get_serial_sequence(?, ?), ?)", l.quoted(table), column, int64(sentinel)).Error
	} else {
		err = l.without.Exec("INSERT INTO ? (?) VALUES (?)", clause.Table{Name: table}, clause.Column{Name: column}, int64(sentinel)).Error
	}
	if err != nil {
		t.Fatalf("%s: %v", table, err)
	}
}

// A cell is one run of a path, with the plugin or, as the reference, without.
type cell[K key] struct {
	*lane[K]
	t         *testing.T
	db        *gorm.DB
	reference bool
	zero      bool // of the path

	set      map[int64]bool // keys that the path has set itself
	trace    []string
	problems []string
	remarks  []string
	cleanups []func()
}

// stop ends a path, with an error.
type stop struct{ err error }

// do ends the path if a statement failed, and notes how many rows it changed.
func (c *cell[K]) do(tx *gorm.DB) {
	c.must(tx.Error)
	c.note("%d", tx.RowsAffected)
}

// must ends the path if there is an error.
func (c *cell[K]) must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// note adds to what is compared with the reference.
func (c *cell[K]) note(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

// check reports an error unless ok. The reference may be wrong.
func (c *cell[K]) check(ok bool, format string, args ...any) {
	if !ok && !c.reference {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// remark adds a footnote to the cell.
func (c *cell[K]) remark(text string) { c.remarks = append(c.remarks, text) }

// cleanup runs f when all is checked and counted.
func (c *cell[K]) cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

// key is the key of a new row: none with the plugin, which is to set it.
func (c *cell[K]) key() (k K) {
	if c.reference && !c.byDatabase() {
		k = c.own()
	}
	return k
}

// byDatabase reports whether the reference leaves keys to the database.
func (c *cell[K]) byDatabase() bool { return c.zero && c.kind.auto }

// own is a key that the path sets itself.
func (c *cell[K]) own() K {
	c.presets++
	c.set[c.presets] = true
	return keyFor[K](c.presets)
}

// m is a map for a new row.
func (c *cell[K]) m(m map[string]any) map[string]any {
	if c.reference && !c.byDatabase() {
		m["id"] = c.ownValue()
	}
	return m
}

// ownValue is own for maps.
func (c *cell[K]) ownValue() any {
	n := number(c.own())
	switch any(*new(K)).(type) {
	case uint64:
		return uint64(n)
	case string:
		return strconv.FormatInt(n, 10)
	}
	return n
}

// unique is a name that no other row has.
func (c *cell[K]) unique(name string) string {
	c.names++
	return fmt.Sprintf("%s %d", name, c.names)
}

// ours checks that an id was made by the plugin for a table.
func (c *cell[K]) ours(what string, id int64, table string) {
	if c.reference || c.set[id] {
		return
	}
	if id == 0 {
		c.check(false, "%s has no id", what)
		return
	}
	where, err := c.plugin.Locate(context.Background(), uidplugin.ID(id))
	c.check(err == nil, "%s: %v", what, err)
	c.check(err != nil || where.Table == table, "%s leads to %q, want %q", what, where.Table, table)
}

// right checks created rows with all their associations. Rows are pointers to structs, slices, or pointers to slices.
func (c *cell[K]) right(rows ...any) {
	if c.reference {
		return
	}
	seen := map[any]bool{}
	for _, r := range rows {
		c.each(reflect.ValueOf(r), func(v reflect.Value) { c.rightRow(v, "", true, seen) })
	}
}

// alone is right for the rows alone, in a table that may not be the model's.
func (c *cell[K]) alone(table string, rows ...any) {
	if c.reference {
		return
	}
	for _, r := range rows {
		c.each(reflect.ValueOf(r), func(v reflect.Value) { c.rightRow(v, table, false, map[any]bool{}) })
	}
}

// each calls f for all structs in v.
func (c *cell[K]) each(v reflect.Value, f func(v reflect.Value)) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			c.each(v.Index(i), f)
		}
	case reflect.Struct:
		f(v)
	default:
		c.check(false, "a %v where a row should be", v.Kind())
	}
}

// parse returns the schema of a row.
func (c *cell[K]) parse(v reflect.Value) *schema.Schema {
	stmt := &gorm.Statement{DB: c.db}
	c.must(stmt.Parse(reflect.New(v.Type()).Interface()))
	return stmt.Schema
}

func (c *cell[K]) rightRow(v reflect.Value, table string, deep bool, seen map[any]bool) {
	if v.CanAddr() {
		if seen[v.Addr().Interface()] {
			return
		}
		seen[v.Addr().Interface()] = true
	}
	ctx := context.Background()
	s := c.parse(v)
	name := s.Name
	if table == "" {
		table = s.Table
	}
	var columns, want []string
	for _, f := range s.Fields {
		if f.DBName == "" || s.FieldsByDBName[f.DBName] != f {
			continue
		}
		value, _ := f.ValueOf(ctx, v)
		if isUID(f) {
			c.ours(name+"."+f.Name, parsed(written(value)), s.Table)
		}
		switch f.IndirectFieldType.Kind() {
		case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint, reflect.String:
			if f.Serializer == nil {
				columns, want = append(columns, f.DBName), append(want, written(value))
			}
		}
	}
	var conditions []clause.Expression
	for _, f := range s.PrimaryFields {
		value, _ := f.ValueOf(ctx, v)
		conditions = append(conditions, clause.Eq{Column: clause.Column{Name: f.DBName}, Value: value})
	}
	got, err := c.read(table, columns, conditions)
	if err != nil {
		c.check(false, "%s with %s %s: %v", name, s.PrimaryFieldDBNames, want, err)
		return
	}
	for i := range got {
		if got[i] == null && (want[i] == "0" || want[i] == "") {
			got[i] = want[i] // not selected, or a nil pointer
		}
	}
	c.check(slices.Equal(got, want), "%s has %v, its row %v (%v)", name, want, got, columns)
	if !deep {
		return
	}
	for name, r := range s.Relationships.Relations {
		if strings.HasPrefix(name, "_") {
			continue // another model's, kept here for its constraint
		}
		if value, zero := r.Field.ValueOf(ctx, v); !zero {
			c.each(reflect.ValueOf(value), func(related reflect.Value) {
				c.rightRow(related, "", true, seen)
				c.linked(r, v, related)
			})
		}
	}
}

// isUID reports whether the plugin is to set a field.
func isUID(f *schema.Field) bool {
	_, ok := f.TagSettings["UID"]
	return ok && (f.PrimaryKey || strings.Contains(f.Tag.Get("gorm"), "uid"))
}

const null = "NULL"

// read returns what one row has in some columns.
func (c *cell[K]) read(table string, columns []string, conditions []clause.Expression) ([]string, error) {
	query := c.without.Table("?", clause.Table{Name: table}).Clauses(clause.Where{Exprs: conditions}).Limit(2)
	var selected clause.Select
	for _, column := range columns {
		selected.Columns = append(selected.Columns, clause.Column{Name: column})
	}
	rows, err := query.Clauses(selected).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return nil, fmt.Errorf("there is no such row (%w)", gorm.ErrRecordNotFound)
	}
	text, scan := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range text {
		scan[i] = &text[i]
	}
	if err := rows.Scan(scan...); err != nil {
		return nil, err
	}
	got := make([]string, len(columns))
	for i := range text {
		if got[i] = text[i].String; !text[i].Valid {
			got[i] = null
		}
	}
	return got, nil
}

// linked checks that the foreign keys between two rows agree.
func (c *cell[K]) linked(r *schema.Relationship, v, related reflect.Value) {
	ctx := context.Background()
	value := func(f *schema.Field, v reflect.Value) string {
		value, _ := f.ValueOf(ctx, v)
		return written(value)
	}
	var conditions []clause.Expression
	for _, ref := range r.References {
		switch {
		case r.Type == schema.Many2Many:
			from := related
			if ref.OwnPrimaryKey {
				from = v
			}
			key, _ := ref.PrimaryKey.ValueOf(ctx, from)
			conditions = append(conditions, clause.Eq{Column: clause.Column{Name: ref.ForeignKey.DBName}, Value: key})
		case ref.PrimaryValue != "":
			c.check(value(ref.ForeignKey, related) == ref.PrimaryValue, "%s.%s is %q, want %q", r.FieldSchema.Name, ref.ForeignKey.Name, value(ref.ForeignKey, related), ref.PrimaryValue)
		default:
			from, to := v, related // belongs to
			if ref.OwnPrimaryKey {
				from, to = related, v
			}
			fk, pk := value(ref.ForeignKey, from), value(ref.PrimaryKey, to)
			c.check(fk == pk && pk != "" && pk != "0", "%s: the foreign key %s is %q, the key %q", r.Name, ref.ForeignKey.Name, fk, pk)
		}
	}
	if r.Type != schema.Many2Many {
		return
	}
	columns := []string{r.References[0].ForeignKey.DBName}
	key := r.JoinTable.LookUpField("ID")
	if key != nil {
		columns[0] = key.DBName
	}
	got, err := c.read(r.JoinTable.Table, columns, conditions)
	c.check(err == nil, "%s: no row in %s: %v", r.Name, r.JoinTable.Table, err)
	if err == nil && key != nil {
		c.ours(r.JoinTable.Table, parsed(got[0]), r.JoinTable.Table)
	}
}
