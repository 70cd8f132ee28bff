package main

import (
	"fmt"
	"reflect"
)

// A numbered is the model of the table table_m_n. GORM needs a Go type for each table, so m and n are the lengths of the
// array types A and B.
type numbered[A, B any] struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

// TableName implements GORM's Tabler.
func (numbered[A, B]) TableName() string {
	return fmt.Sprintf("table_%d_%d", reflect.TypeFor[A]().Len(), reflect.TypeFor[B]().Len())
}

func ten[A any]() []any {
	return []any{&numbered[A, [0]int]{}, &numbered[A, [1]int]{}, &numbered[A, [2]int]{}, &numbered[A, [3]int]{},
		&numbered[A, [4]int]{}, &numbered[A, [5]int]{}, &numbered[A, [6]int]{}, &numbered[A, [7]int]{},
		&numbered[A, [8]int]{}, &numbered[A, [9]int]{}}
}

// tables returns the models of n tables, at most 200.
func tables(n int) (models []any) {
	for _, f := range []func() []any{
		ten[[0]int], ten[[1]int], ten[[2]int], ten[[3]int], ten[[4]int], ten[[5]int], ten[[6]int], ten[[7]int],
		ten[[8]int], ten[[9]int], ten[[10]int], ten[[11]int], ten[[12]int], ten[[13]int], ten[[14]int], ten[[15]int],
		ten[[16]int], ten[[17]int], ten[[18]int], ten[[19]int],
	} {
		models = append(models, f()...)
	}
	return models[:n]
}
