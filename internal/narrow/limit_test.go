package narrow_test

import (
	"database/sql"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/narrow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A statement that GORM is about to build has its values in clauses, in whatever form the application gave them.
func TestLimitsCheck_FindsWhatDoesNotFitInEachClause(t *testing.T) {
	t.Parallel()

	type Page struct {
		ID     int64
		BookID int64
		Number int
	}
	db, _ := testkit.Mock(t, testkit.OnMySQL)
	pages, err := model.Parse(db, &Page{})
	testkit.Must(t, err)
	limit := narrow.Limit{Range: model.RangeOf("int", "mysql"), Field: "Page.BookID", Name: "book_id", Type: "int", Fix: "ALTER TABLE"}
	lenient := limit
	lenient.Lenient = true
	small := lenient
	small.Small = true
	big := int64(1) << 40
	book, excluded := clause.Column{Name: "book_id"}, clause.Column{Table: "excluded", Name: "book_id"}
	check := func(l narrow.Limit, c clause.Interface) error {
		stmt := &gorm.Statement{DB: db, Table: "pages", Schema: pages, Context: t.Context(), Clauses: map[string]clause.Clause{}}
		stmt.AddClause(c)
		return narrow.Limits{"book_id": l}.Check(stmt)
	}
	for name, tt := range map[string]struct {
		clause                 clause.Interface
		strict, lenient, small bool // whether a strict server gets the value, a lenient one, and one that may have small numbers
	}{
		"nothing":             {clause.Set{}, true, true, true},
		"another column":      {clause.Set{{Column: clause.Column{Name: "number"}, Value: big}}, true, true, true},
		"a number":            {clause.Values{Columns: []clause.Column{{Name: "id"}, book}, Values: [][]any{{big, 1}, {big, int64(2)}}}, true, true, true},
		"a large one":         {clause.Values{Columns: []clause.Column{{Name: "id"}, book}, Values: [][]any{{1, 1}, {1, big}}}, false, false, false},
		"a pointer":           {clause.Set{{Column: book, Value: &big}}, false, false, false},
		"a nil pointer":       {clause.Set{{Column: book, Value: (*int64)(nil)}}, true, true, true},
		"a Valuer":            {clause.Set{{Column: book, Value: sql.NullInt64{Int64: big, Valid: true}}}, false, false, false},
		"NULL":                {clause.Set{{Column: book, Value: sql.NullInt64{Int64: big}}}, true, true, true},
		"a text":              {clause.Set{{Column: clause.Column{Name: "pages.Book_ID"}, Value: "1099511627776"}}, false, false, false},
		"bytes":               {clause.Set{{Column: book, Value: []byte("1099511627776")}}, false, false, false},
		"the same column":     {clause.Set{{Column: book, Value: gorm.Expr("IF(book_id > ?, NULL, book_id)", 1)}}, true, true, true},
		"an expression":       {clause.Set{{Column: book, Value: gorm.Expr("book_id + ?", big)}}, true, false, true},
		"another as a value":  {clause.Set{{Column: book, Value: gorm.Expr("`id`")}}, true, false, true},
		"a column as a value": {clause.Set{{Column: book, Value: clause.Column{Name: "id"}}}, true, false, true},
		"a subquery":          {clause.Set{{Column: book, Value: []any{db.Table("books").Select("MAX(n)")}}}, true, false, true},
		"DO UPDATE":           {clause.OnConflict{DoUpdates: clause.Set{{Column: book, Value: big}}}, false, false, false},
		"excluded":            {clause.OnConflict{DoUpdates: clause.Set{{Column: book, Value: excluded}}}, true, true, true},
		"a float":             {clause.Set{{Column: book, Value: float64(big)}}, false, false, false},
		"a small float":       {clause.Set{{Column: book, Value: float32(7.5)}}, true, true, true},
		"places":              {clause.Set{{Column: book, Value: "1099511627776.0"}}, false, false, false},
		"an exponent":         {clause.Set{{Column: book, Value: "7.5e18"}}, false, false, false},
		"a literal":           {clause.Set{{Column: book, Value: gorm.Expr("(1099511627776)")}}, true, false, false},
		"a small literal":     {clause.Set{{Column: book, Value: gorm.Expr("(7)")}}, true, true, true},
		"hexadecimal":         {clause.Set{{Column: book, Value: gorm.Expr("0xFFFFFFFFFF")}}, true, false, true},
		"a product":           {clause.Set{{Column: book, Value: gorm.Expr("book_id * 1000000000")}}, true, false, true},
		"a function":          {clause.Set{{Column: book, Value: gorm.Expr("CONCAT(book_id, '000000000')")}}, true, false, true},
		"excluded of another": {clause.OnConflict{DoUpdates: clause.Set{{Column: book, Value: clause.Column{Table: "excluded", Name: "number"}}}}, true, false, true},
	} {
		for l, ok := range map[*narrow.Limit]bool{&limit: tt.strict, &lenient: tt.lenient, &small: tt.small} {
			err := check(*l, tt.clause)
			if (err == nil) != ok {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil {
				testkit.IsError(t, err, model.ErrField, "Page.BookID", "book_id", "ALTER TABLE")
			}
		}
	}
}
