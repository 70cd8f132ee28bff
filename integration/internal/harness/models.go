package harness

import (
	"fmt"

	"github.com/uidplugin/uidplugin"
)

// Models of five tables, with keys of several types.
type (
	T1 struct{ uidplugin.Model }
	T2 struct {
		ID int64 `gorm:"primaryKey;uid"`
	}
	T3 struct {
		ID uint64 `gorm:"primaryKey;uid"`
	}
	T4 struct {
		ID string `gorm:"primaryKey;uid;size:20"`
	}
	T5 struct {
		Key uidplugin.ID `gorm:"primaryKey;uid:snowflake"`
	}
)

// Models of a thousand tables.
type (
	Digit interface{ digit() int }
	D0    struct{}
	D1    struct{}
	D2    struct{}
	D3    struct{}
	D4    struct{}
	D5    struct{}
	D6    struct{}
	D7    struct{}
	D8    struct{}
	D9    struct{}

	// Numbered is the model of the table n_ABC, where A, B and C are digits.
	Numbered[A, B, C Digit] struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
)

func (D0) digit() int { return 0 }
func (D1) digit() int { return 1 }
func (D2) digit() int { return 2 }
func (D3) digit() int { return 3 }
func (D4) digit() int { return 4 }
func (D5) digit() int { return 5 }
func (D6) digit() int { return 6 }
func (D7) digit() int { return 7 }
func (D8) digit() int { return 8 }
func (D9) digit() int { return 9 }

// TableName implements [schema.Tabler].
func (Numbered[A, B, C]) TableName() string {
	var a A
	var b B
	var c C
	return fmt.Sprintf("n_%d%d%d", a.digit(), b.digit(), c.digit())
}

// Ten returns the models of the tables n_AB0 to n_AB9.
func Ten[A, B Digit]() []any {
	return []any{
		&Numbered[A, B, D0]{}, &Numbered[A, B, D1]{}, &Numbered[A, B, D2]{}, &Numbered[A, B, D3]{}, &Numbered[A, B, D4]{},
		&Numbered[A, B, D5]{}, &Numbered[A, B, D6]{}, &Numbered[A, B, D7]{}, &Numbered[A, B, D8]{}, &Numbered[A, B, D9]{},
	}
}

// Hundred returns the models of the tables n_A00 to n_A99.
func Hundred[A Digit]() (models []any) {
	for _, f := range []func() []any{Ten[A, D0], Ten[A, D1], Ten[A, D2], Ten[A, D3], Ten[A, D4], Ten[A, D5], Ten[A, D6],
		Ten[A, D7], Ten[A, D8], Ten[A, D9]} {
		models = append(models, f()...)
	}
	return models
}

// Thousand returns the models of the tables n_000 to n_999.
func Thousand() (models []any) {
	for _, f := range []func() []any{Hundred[D0], Hundred[D1], Hundred[D2], Hundred[D3], Hundred[D4], Hundred[D5],
		Hundred[D6], Hundred[D7], Hundred[D8], Hundred[D9]} {
		models = append(models, f()...)
	}
	return models
}
