package model

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm/schema"
)

// CheckForeignKeys returns the associations that lose ids: GORM silently copies an id to a foreign key that cannot
// hold it. Each error wraps [ErrField] and names both fields.
func CheckForeignKeys(s *schema.Schema, t Target) map[*schema.Relationship]error {
	var bad map[*schema.Relationship]error
	for _, r := range Relations(s) {
		for _, ref := range r.References {
			pk := ref.PrimaryKey // nil for the type column of a polymorphic association
			if pk == nil || !slices.Contains(UIDFields(pk.Schema), pk) {
				continue
			}
			if err := checkForeignKey(ref.ForeignKey, pk, t); err != nil {
				if bad == nil {
					bad = map[*schema.Relationship]error{}
				}
				bad[r] = errors.Join(bad[r], err)
			}
		}
	}
	return bad
}

// Distinct appends the errors of CheckForeignKeys to errs in the order of the associations, without duplicates:
// both models of a foreign key may have an association for it.
func Distinct(s *schema.Schema, bad map[*schema.Relationship]error, errs []error) []error {
	for _, r := range Relations(s) {
		err := bad[r]
		if err != nil && !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkForeignKey returns an error if the foreign key fk cannot hold the ids of the uid field pk. It must not read
// the data type and size of fk, because GORM changes them while it parses another model with an association to fk.
func checkForeignKey(fk, pk *schema.Field, t Target) error {
	key, err := NewField(pk, t)
	if err != nil {
		return nil // the creates of pk's model return this error
	}
	digits := t.digits()
	fix, problem := "make it int64 or uidplugin.ID", ""
	if key.Text {
		fix = fmt.Sprintf("make it a string of %d characters", digits)
	}
	text := key.Text || fk.IndirectFieldType.Kind() == reflect.String
	if got, err := key.copied(t.Largest, fk); err != nil || got != strconv.FormatInt(t.Largest, 10) {
		article := "a"
		if strings.HasPrefix(fk.FieldType.String(), "int") {
			article = "an"
		}
		problem = fmt.Sprintf("is %s %v", article, fk.FieldType)
	} else if size, err := strconv.Atoi(fk.TagSettings["SIZE"]); err == nil {
		problem, fix = tooSmall(text, size, digits), "remove the size from its tag"
		if text {
			fix = fmt.Sprintf("make the size %d or more", digits)
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w %s.%s %s, but it refers to %s.%s, whose ids have 64 bits: %s",
		ErrField, fk.Schema.Name, fk.Name, problem, pk.Schema.Name, pk.Name, fix)
}

// copied sets f to id, copies its value to the foreign key fk as GORM does, and returns the digits that fk stores.
func (f *Field) copied(id int64, fk *schema.Field) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // the type's Scan may panic
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx := context.Background()
	from, to := reflect.New(f.Schema.ModelType).Elem(), reflect.New(fk.Schema.ModelType).Elem()
	place, _ := f.Look(ctx, from)
	if err := f.Put(ctx, place, id); err != nil {
		return "", err
	}
	v, _ := f.ValueOf(ctx, from)
	if err := fk.Set(ctx, to, v); err != nil {
		return "", err
	}
	if fk.Serializer != nil { // a serializer may encode the number freely, so we compare the Go value
		return Digits(fk.ReflectValueOf(ctx, to).Interface()), nil
	}
	v, _ = fk.ValueOf(ctx, to)
	if valuer, ok := v.(driver.Valuer); ok {
		if _, err := valuer.Value(); err != nil {
			return "", err
		}
	}
	return Digits(v), nil
}
