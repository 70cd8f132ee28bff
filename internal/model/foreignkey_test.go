package model_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Bill has associations of all kinds, with foreign keys of any type.
type (
	Bill[K, F any] struct {
		ID    K         `gorm:"primaryKey;uid"`
		Items []Item[F] `gorm:"foreignKey:BillID"`
		Note  *Note[F]  `gorm:"polymorphic:Owner"`
	}
	Item[F any] struct {
		ID     int64
		BillID F
	}
	Note[F any] struct {
		ID        int64
		OwnerID   F
		OwnerType string
	}
)

// The application must not have to look for a foreign key that refers to a key of its own, or that is in order.
func TestCheckForeignKeys_NamesBothFieldsAndTheWayOut(t *testing.T) {
	t.Parallel()

	type Line struct {
		ID     int64
		CartID int8
	}
	type Cart struct {
		ID    int8
		Trace int64 `gorm:"uid"`
		Lines []Line
	}
	for _, tt := range []struct {
		model any
		says  string // of each association; "": all is well
	}{
		{&Bill[int64, int64]{}, ""},
		{&Bill[int64, uint64]{}, ""},
		{&Bill[int64, *int64]{}, ""},
		{&Bill[string, string]{}, ""},
		{&Bill[int64, int32]{}, " is an int32, but it refers to Bill[int64,int32].ID, " +
			"whose ids have 64 bits: make it int64 or uidplugin.ID"},
		{&Bill[int64, uint16]{}, " is a uint16, but it refers to Bill[int64,uint16].ID"},
		{&Bill[int64, bool]{}, " is a bool, but it refers"},
		{&Bill[string, int32]{}, " is an int32, but it refers to Bill[string,int32].ID, " +
			"whose ids have 64 bits: make it a string of 19 characters"},
		{&Bill[int32, int8]{}, ""}, // the key itself is refused
		{&Cart{}, ""},              // it refers to no uid field
	} {
		s := parse(t, tt.model)
		bad := model.CheckForeignKeys(s, target)
		err := errors.Join(model.Distinct(s, bad, nil)...)
		if tt.says == "" {
			testkit.Must(t, err)
			continue
		}
		testkit.IsError(t, err, model.ErrField, ".BillID"+tt.says, ".OwnerID"+tt.says)
		if len(bad) != 2 || bad[s.Relationships.Relations["Items"]] == nil || bad[s.Relationships.Relations["Note"]] == nil {
			t.Errorf("%T: the associations are %v", tt.model, bad)
		}
	}
}

// GORM makes a column of the size, which need not be that of the Go type. SQLite ignores it, but the same model is
// refused there as in production.
func TestCheckForeignKeys_LooksAtSizes(t *testing.T) {
	t.Parallel()

	type Line struct {
		ID      int64
		OrderID int64 `gorm:"size:32"`
	}
	type Order struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Lines []Line
	}
	s := parse(t, &Order{})
	for _, dialect := range []string{"mysql", "postgres", "sqlite"} {
		bad := model.CheckForeignKeys(s, model.Target{Largest: target.Largest, Dialect: dialect})
		testkit.IsError(t, errors.Join(model.Distinct(s, bad, nil)...), model.ErrField,
			"Line.OrderID has only 32 bits (size:32 in its tag", "refers to Order.ID", "64 bits: remove the size from its tag")
	}
}

// A message whose parts change their order at each start cannot be compared.
func TestDistinct_KeepsTheOrderOfTheAssociations(t *testing.T) {
	t.Parallel()

	s := parse(t, &Bill[int64, int32]{})
	for range 20 {
		message := errors.Join(model.Distinct(s, model.CheckForeignKeys(s, target), nil)...).Error()
		if one, many := strings.Index(message, "OwnerID"), strings.Index(message, "BillID"); one < 0 || many < one {
			t.Fatal(message)
		}
	}
	testkit.Must(t, errors.Join(model.Distinct(s, nil, nil)...))
	testkit.IsError(t, model.CheckForeignKeys(s, target)[s.Relationships.Relations["Items"]], model.ErrField)
}
