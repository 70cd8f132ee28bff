package main

import "fmt"

// A numbered is the model of one of many tables. Its type parameters are the digits of its number.
type numbered[A, B, C digit] struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

// A digit is a type that stands for a digit.
type digit interface{ digit() int }

type (
	d0 struct{}
	d1 struct{}
	d2 struct{}
	d3 struct{}
	d4 struct{}
	d5 struct{}
	d6 struct{}
	d7 struct{}
	d8 struct{}
	d9 struct{}
)

func (d0) digit() int { return 0 }
func (d1) digit() int { return 1 }
func (d2) digit() int { return 2 }
func (d3) digit() int { return 3 }
func (d4) digit() int { return 4 }
func (d5) digit() int { return 5 }
func (d6) digit() int { return 6 }
func (d7) digit() int { return 7 }
func (d8) digit() int { return 8 }
func (d9) digit() int { return 9 }

// TableName implements GORM's Tabler.
func (numbered[A, B, C]) TableName() string {
	var a A
	var b B
	var c C
	return fmt.Sprintf("table_%d%d%d", a.digit(), b.digit(), c.digit())
}

func ten[A, B digit]() []any {
	return []any{
		&numbered[A, B, d0]{}, &numbered[A, B, d1]{}, &numbered[A, B, d2]{}, &numbered[A, B, d3]{},
		&numbered[A, B, d4]{},
		&numbered[A, B, d5]{}, &numbered[A, B, d6]{}, &numbered[A, B, d7]{}, &numbered[A, B, d8]{},
		&numbered[A, B, d9]{},
	}
}

func hundred[A digit]() (models []any) {
	for _, f := range []func() []any{ten[A, d0], ten[A, d1], ten[A, d2], ten[A, d3], ten[A, d4], ten[A, d5], ten[A, d6],
		ten[A, d7], ten[A, d8], ten[A, d9]} {
		models = append(models, f()...)
	}
	return models
}

// tables returns the models of n tables, at most 200.
func tables(n int) []any { return append(hundred[d0](), hundred[d1]()...)[:n] }
