package model

import (
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ErrZeroKey reports a create that would insert the key 0.
var ErrZeroKey = errors.New("uidplugin: zero key")

// A noZeroKey is a clause without SQL. It refuses a create that would write 0 into a key. The key's type adds the
// clause, so it also works on handles without the plugin.
type noZeroKey struct{ Key *schema.Field }

var _ gorm.StatementModifier = noZeroKey{}

// Name, Build and MergeClause implement [clause.Interface]; GORM calls ModifyStatement instead.
func (noZeroKey) Name() string { return "" }

// Build does nothing.
func (noZeroKey) Build(clause.Builder) {}

// MergeClause does nothing.
func (noZeroKey) MergeClause(*clause.Clause) {}

// RefuseZeroKeys adds [ErrZeroKey] to a statement that would write 0 into a key.
func RefuseZeroKeys(stmt *gorm.Statement) {
	for _, c := range stmt.Schema.CreateClauses {
		if z, ok := c.(noZeroKey); ok {
			z.ModifyStatement(stmt)
		}
	}
}

// ModifyStatement adds [ErrZeroKey] to a statement that would write 0. It runs for every create, so it first
// searches for a zero, which allocates nothing.
func (z noZeroKey) ModifyStatement(stmt *gorm.Statement) {
	i := z.find(stmt.ReflectValue)
	f := z.Key
	if i < 0 || f.HasDefaultValue || !f.Creatable {
		return // the tag decides what GORM writes, even if the tag is default:0
	}
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	if selected, named := columns[f.DBName]; named && !selected || !named && restricted {
		return
	}
	_ = stmt.AddError(fmt.Errorf("%w: %s.%s of row %d is 0: %s", ErrZeroKey, f.Schema.Name, f.Name, i, z.why(stmt)))
}

// find returns the index of the first row whose key is 0, or -1.
func (z noZeroKey) find(rows reflect.Value) int {
	switch rows.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range rows.Len() {
			if z.isZero(rows.Index(i)) {
				return i
			}
		}
	default:
		if z.isZero(rows) {
			return 0
		}
	}
	return -1
}

// isZero reports whether an INSERT of row, which is a struct or a map, writes 0 instead of NULL or the default.
func (z noZeroKey) isZero(row reflect.Value) bool {
	row = reflect.Indirect(row) // GORM refuses other kinds
	var key reflect.Value
	switch {
	case row.Kind() == reflect.Struct && row.Type() == z.Key.Schema.ModelType:
		key = FieldOf(row, z.Key)
	case row.Kind() == reflect.Map:
		m, _ := row.Interface().(map[string]any)
		key = reflect.ValueOf(m[mapKey(m, z.Key)])
	}
	key = reflect.Indirect(key)
	return key.IsValid() && key.IsZero()
}

func (z noZeroKey) why(stmt *gorm.Statement) string {
	switch _, used := stmt.DB.Config.Plugins["uidplugin"]; {
	case !used:
		return "this database handle has no plugin; call db.Use(uidplugin.New()) on it, or set the key"
	case joins(z.Key.Schema):
		return "a row of the association has no key, for example because it existed already and ON CONFLICT left it alone; load it first"
	case z.Key.TagSettings[tagKey] != "":
		return "its tag leaves the key to the application; set the key"
	case !HasTag(z.Key):
		return `the field has no tag uid, so the plugin does not set it; set the key, or tag it gorm:"primaryKey;uid" if it refers to no other row`
	}
	return "a hook, or another plugin, has set it to 0 after the plugin had set it"
}
