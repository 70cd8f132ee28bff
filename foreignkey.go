package uidplugin

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// checkForeignKeys returns the associations that lose ids: GORM copies an id from a uid field to a foreign key that
// cannot hold it, and says nothing. Each error wraps [ErrField] and names both fields.
func (c *core) checkForeignKeys(s *schema.Schema) map[*schema.Relationship]error {
	var bad map[*schema.Relationship]error
	for _, r := range relations(s) {
		for _, ref := range r.References {
			pk := ref.PrimaryKey // nil for the type of a polymorphic association
			if pk == nil || !slices.Contains(uidFields(pk.Schema), pk) {
				continue
			}
			if err := c.checkForeignKey(ref.ForeignKey, pk); err != nil {
				if bad == nil {
					bad = map[*schema.Relationship]error{}
				}
				bad[r] = errors.Join(bad[r], err)
			}
		}
	}
	return bad
}

// joined returns all errors of checkForeignKeys, in the order of the associations.
func joined(s *schema.Schema, bad map[*schema.Relationship]error) error {
	var errs []error
	for _, r := range relations(s) {
		errs = append(errs, bad[r])
	}
	return errors.Join(errs...)
}

// checkForeignKey returns an error if the foreign key fk cannot hold the ids of the uid field pk. It reads nothing of
// fk that GORM changes when it parses another model with an association to it: data type and size.
func (c *core) checkForeignKey(fk, pk *schema.Field) error {
	dialect := c.db.Dialector.Name()
	key, err := newField(pk, c.largest, dialect)
	if err != nil {
		return nil // creates of its model say so
	}
	digits := len(strconv.FormatInt(c.largest, 10))
	fix, what := "int64 or uidplugin.ID", ""
	if key.text {
		fix = fmt.Sprintf("a string of %d characters", digits)
	}
	text := key.text || fk.IndirectFieldType.Kind() == reflect.String
	if size, err := strconv.Atoi(fk.TagSettings["SIZE"]); err == nil && dialect != "sqlite" { // which ignores sizes
		what = tooSmall(text, size, digits)
	}
	if got, err := key.copied(c.largest, fk); what == "" && (err != nil || got != strconv.FormatInt(c.largest, 10)) {
		article := "a"
		if strings.HasPrefix(fk.FieldType.String(), "int") {
			article = "an"
		}
		what = fmt.Sprintf("is %s %v", article, fk.FieldType)
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("%w %s.%s %s and refers to %s.%s, whose ids have 64 bits: make it %s",
		ErrField, fk.Schema.Name, fk.Name, what, pk.Schema.Name, pk.Name, fix)
}

// copied sets f to id in a fresh struct, copies it to the foreign key fk as GORM does, and returns the digits that the
// database would get.
func (f *field) copied(id int64, fk *schema.Field) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // what the Scan of a type does
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx := context.Background()
	from, to := reflect.New(f.Schema.ModelType).Elem(), reflect.New(fk.Schema.ModelType).Elem()
	place, _ := f.look(ctx, from)
	if err := f.put(ctx, place, id); err != nil {
		return "", err
	}
	v, _ := f.ValueOf(ctx, from)
	if err := fk.Set(ctx, to, v); err != nil {
		return "", err
	}
	if fk.Serializer != nil { // it may write the number in any way, as long as it has all of it
		return digits(fk.ReflectValueOf(ctx, to).Interface()), nil
	}
	v, _ = fk.ValueOf(ctx, to)
	if valuer, ok := v.(driver.Valuer); ok {
		if _, err := valuer.Value(); err != nil {
			return "", err
		}
	}
	return digits(v), nil
}

// refuseLost adds an error to an UPDATE that would save rows of an association that loses ids.
func (p *plan) refuseLost(db *gorm.DB) {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	for _, r := range relations(p.schema) {
		err := p.lost[r]
		if selected, named := columns[r.Name]; err == nil || named && !selected || !named && restricted {
			continue
		}
		if p.anyAssociated(reflect.ValueOf(db.Statement.Model), r) {
			_ = db.AddError(err)
		}
	}
}

// anyAssociated reports whether what is, or holds, rows of the plan's model has rows of an association.
func (p *plan) anyAssociated(v reflect.Value, r *schema.Relationship) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if p.anyAssociated(v.Index(i), r) {
				return true
			}
		}
	case reflect.Struct:
		return v.Type() == p.schema.ModelType && !isEmpty(fieldOf(v, r.Field))
	}
	return false
}
