// wing: segment

package segments

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

var instant = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// opening returns an opener for a handle.
func opening(db *gorm.DB) *opener {
	return &opener{Supply: supply.New(supply.Config{DB: db, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return instant }})}
}

func TestOpenerLargestKey_ComparesTextByItsNumber(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		dial      func(gorm.ConnPool) gorm.Dialector
		text      bool
		statement string
	}{
		{testkit.OnMySQL, false, "SELECT MAX(`id`) FROM `shop`.`orders`"},
		{testkit.OnMySQL, true, "SELECT MAX(" + numberInText("`id`", "mysql") + ") FROM `shop`.`orders`"},
		{testkit.OnPostgres, false, `SELECT MAX("id") FROM "shop"."orders"`},
		{testkit.OnPostgres, true, `SELECT MAX(` + numberInText(`"id"`, "postgres") + `) FROM "shop"."orders"`},
	} {
		db, mock := testkit.Mock(t, tt.dial)
		s := opening(db)
		for answer, want := range map[any]int64{nil: 0, int64(-5): 0, int64(7): 7, "8": 8} {
			mock.ExpectQuery(tt.statement).WillReturnRows(sqlmock.NewRows([]string{"max"}).AddRow(answer))
			got, err := s.largestKey(t.Context(), "shop.orders", supply.Column{Name: "id", Text: tt.text})
			if testkit.Must(t, err); got != want {
				t.Errorf("%s: %v is %d", tt.statement, answer, got)
			}
		}
	}
}

// Only a table or a column that does not exist yet has no numbers. If another error were taken for that, ids would be
// made twice.
func TestOpenerLargestKey_IsAnErrorUnlessTheColumnIsMissing(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err     error
		missing bool
	}{
		{errors.New("Error 1146 (42S02): Table 'shop.orders' doesn't exist"), true},
		{errors.New("SQL logic error: no such table: orders (1)"), true},
		{testkit.SQLState("42P01"), true},
		{fmt.Errorf("wrapped: %w", testkit.SQLState("42P01")), true},
		{errors.New("Error 1054 (42S22): Unknown column 'id' in 'SELECT'"), true},
		{errors.New("SQL logic error: no such column: id (1)"), true},
		{testkit.SQLState("42703"), true}, // no such column
		{testkit.SQLState("42883"), false},
		{errors.New("Error 11460 (HY000): other"), false},
		{errors.New("Error 1142 (42000): SELECT command denied to user for table 'Error 1146'"), false},
		{errors.New("broken"), false},
	} {
		if got := noSuchColumn(tt.err); got != tt.missing {
			t.Errorf("%v: %t", tt.err, got)
		}
		db, mock := testkit.Mock(t, testkit.OnMySQL)
		s := opening(db)
		mock.ExpectQuery("SELECT MAX(`id`) FROM `orders`").WillReturnError(tt.err)
		n, err := s.largestKey(t.Context(), "orders", supply.Column{Name: "id"})
		if tt.missing {
			testkit.Must(t, err)
		} else {
			testkit.IsError(t, err, tt.err, "uidplugin: look for the largest id of orders, above which its ids begin")
		}
		if n != 0 {
			t.Errorf("%v: %d", tt.err, n)
		}
	}
}

func TestOpenerConfig_BeginsAboveAllColumnsAndHasDefaults(t *testing.T) {
	t.Parallel()

	s := opening(testkit.SQLite{}.Open(t))
	testkit.Must(t, s.DB.Exec(`CREATE TABLE orders (id BIGINT, no TEXT)`).Error)
	id, no := supply.Column{Name: "id", Primary: true}, supply.Column{Name: "no", Text: true}
	used := func(columns ...supply.Column) int64 {
		t.Helper()
		c, err := s.configOf(t.Context(), "orders", columns)
		testkit.Must(t, err)
		if c.MaxWait != s.Timeout || c.Timeout != s.Timeout || c.Description == "" ||
			c.Log == nil || !c.Now().Equal(instant) {
			t.Errorf("the defaults are %+v", c)
		}
		return c.Used
	}
	if got := used(id, no); got != 0 {
		t.Errorf("an empty table has numbers up to %d", got)
	}
	testkit.Must(t, s.DB.Exec(`INSERT INTO orders VALUES (5, '9'), (7, '10'), (6, 'none')`).Error)
	if a, b, c, d := used(id), used(no), used(id, no), used(no, id); a != 7 || b != 10 || c != 10 || d != 10 {
		t.Errorf("it has numbers up to %d, %d, %d, %d", a, b, c, d)
	}
	s.config = segment.Config{Start: 100, MaxWait: time.Minute, Timeout: time.Hour, Description: "mine"}
	c, err := s.configOf(t.Context(), "orders", []supply.Column{id, no})
	testkit.Must(t, err)
	if c.Start != 100 || c.Used != 10 || c.MaxWait != time.Minute || c.Timeout != time.Hour || c.Description != "mine" {
		t.Errorf("what the application sets becomes %+v", c)
	}
	testkit.Must(t, s.DB.Exec(`INSERT INTO orders VALUES (?, '')`, int64(math.MaxInt64)).Error)
	_, err = s.configOf(t.Context(), "orders", []supply.Column{no, id})
	testkit.IsError(t, err, segment.ErrExhausted, "the largest value of orders.id is 9223372036854775807")
}
