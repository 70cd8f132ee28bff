package main

import (
	"context"

	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Counter has the first number of a table that nobody has taken yet.
type Counter struct {
	Name string `gorm:"primaryKey"`
	Next int64
}

// firstNumber is that of the first row, without its check digit.
const firstNumber = 10_000

// checked makes numbers for people to read out and type in: short ones, whose last digit reveals a mistake.
type checked struct {
	generator.Generator // of what is in front of the check digit
}

// openNumbers is the opener for WithSource. It takes numbers from a [Counter], a hundred at a time, in a transaction of
// its own. A rollback of the create does not undo that transaction. So numbers are skipped when rows are not inserted,
// and at a restart.
func openNumbers(_ context.Context, db *gorm.DB, table string) (generator.Generator, error) {
	if err := db.AutoMigrate(&Counter{}); err != nil {
		return nil, err
	}
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Counter{table, firstNumber}).Error; err != nil {
		return nil, err
	}
	g, err := generator.NewBuffered(generator.BufferedConfig{
		Size: 100,
		Source: func(ctx context.Context, want int64) (generator.Run, error) {
			return take(db.WithContext(ctx), table, want) // the context of db ends when the generator is open
		},
	})
	if err != nil {
		return nil, err
	}
	return &checked{g}, nil
}

// take takes the next n numbers of a counter.
func take(db *gorm.DB, name string, n int64) (generator.Run, error) {
	c := Counter{Name: name}
	err := db.Transaction(func(tx *gorm.DB) error {
		// The update comes first: until the commit, no other transaction gets past it.
		if err := tx.Model(&c).Update("next", gorm.Expr("next + ?", n)).Error; err != nil {
			return err
		}
		return tx.Take(&c).Error
	})
	return generator.Run{First: c.Next - n, N: n}, err
}

// Next implements [generator.Generator].
func (g *checked) Next(ctx context.Context) (int64, error) {
	n, err := g.Generator.Next(ctx)
	if err != nil {
		return 0, err
	}
	return n*10 + checkDigit(n), nil
}

// Fill implements [generator.Generator].
func (g *checked) Fill(ctx context.Context, ids []int64) error {
	if err := g.Generator.Fill(ctx, ids); err != nil {
		return err
	}
	for i, n := range ids {
		ids[i] = n*10 + checkDigit(n)
	}
	return nil
}

// checkDigit returns the digit of Luhn, ISO/IEC 7812. It reveals every wrong digit, and all swaps of neighbours except
// 0 and 9.
func checkDigit(n int64) int64 {
	sum := int64(0)
	for double := true; n > 0; n, double = n/10, !double {
		d := n % 10
		if double {
			d *= 2
		}
		sum += d/10 + d%10
	}
	return (10 - sum%10) % 10
}
