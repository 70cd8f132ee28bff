package publicid_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// MySQL takes a text for 0 where a number is expected, so a delete with such a condition would delete all rows.
func TestID_RefusesConditionsWithTexts(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	row := plugintest.Pass{Notes: []plugintest.PassNote{{}}}
	must(t, db.Create(&row).Error)
	text := row.ID.String()
	for name, handle := range map[string]*gorm.DB{
		"greater":          db.Where("id > ?", text),
		"not equal":        db.Where("passes.id<>?", text),
		"quoted":           db.Where("`passes`.`id` = ?", text),
		"a list":           db.Where("parent = 7 OR id NOT IN ?", []string{"7", text}),
		"a list in SQL":    db.Where("id IN (?, ?)", 7, text),
		"between":          db.Where("id BETWEEN ? AND 9", text),
		"a name":           db.Where("id >= @after", map[string]any{"after": text}),
		"a map":            db.Where(map[string]any{"id": text}),
		"or":               db.Where("parent = 7").Or("id > ?", text),
		"not":              db.Not("id = ?", text),
		"a group":          db.Where(db.Where("parent = 7").Or(db.Where("id < ?", &text))),
		"an expression":    db.Clauses(clause.Gt{Column: "passes.id", Value: text}),
		"keys":             db.Where([]string{text}),
		"a foreign key":    db.Where("parent <> ?", text),
		"what a user sent": db.Where("id > ?", "x"),
		"nothing":          db.Where("id > ?", ""),
		"unscoped":         db.Unscoped().Where("id > ?", text),
		"another case":     db.Where("`Passes`.`ID` <> ?", "x"),
		"parentheses":      db.Where("(passes.id) <> ?", "x"),
		"the value first":  db.Where("? <> id", "x"),
		"an upper limit":   db.Where("id NOT BETWEEN 9 AND ?", "x"),
		"bytes":            db.Where("id > ?", []byte("x")),
		"a tuple":          db.Where("(id, parent) > (?, ?)", text, 7),
		"a function":       db.Where("ABS(passes.ID) > ?", text),
		"another table":    db.Joins("JOIN pass_notes n ON n.pass_id = passes.id").Where("n.id <> ?", text),
		"a join":           db.Joins("JOIN pass_notes n ON n.pass_id = passes.id AND passes.id > ?", text),
		"an association":   db.Joins("Notes", db.Where("passes.id > ?", text)),
		"its column":       db.Joins("Notes", db.Where("pass_id > ?", text)), // no column of passes is called so
		"having":           db.Group("id").Having("MAX(id) > ?", text),
		"a named argument": db.Where("ABS(id) > @after", sql.Named("after", sql.NullString{String: text, Valid: true})),
		"a field":          db.Where("ABS(id) > @After", struct{ After json.Number }{json.Number(text)}),
		"a subquery":       db.Where("id IN (?)", db.Model(&plugintest.PassNote{}).Select("pass_id").Where("id > ?", text)),
	} {
		var n int64
		for kind, err := range map[string]error{
			"query": handle.Session(&gorm.Session{}).Find(&[]plugintest.Pass{}).Error, "count": handle.Session(&gorm.Session{}).Model(&plugintest.Pass{}).Count(&n).Error,
			"update": handle.Session(&gorm.Session{}).Model(&plugintest.Pass{}).Update("parent", 0).Error,
			"delete": handle.Session(&gorm.Session{}).Delete(&plugintest.Pass{}).Error,
		} {
			if !errors.Is(err, publicid.ErrInvalid) || !strings.Contains(err.Error(), "publicid.Parse[plugintest.Pass]") {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
	for name, handle := range map[string]*gorm.DB{
		"the key":           db.Where("id = ?", row.ID),
		"digits":            db.Where("id = ?", uidplugin.ID(row.ID).String()),
		"another column":    db.Where("parent_text = ? OR 'text' = ?", text, text).Select("id, '' AS parent_text"),
		"its own condition": db.Where("id > ?", row.ID).Where("parent_text = ?", text).Select("id, '' AS parent_text"),
		"a struct":          db.Where(&struct{ ID, ParentText string }{"7", text}),
		"another table":     db.Joins("JOIN pass_notes n ON n.pass_id = passes.id").Where("n.id <> ?", "x"),
		"an expression":     db.Where("CAST(passes.id AS CHAR) <> ?", "x"),
		"a tuple":           db.Where("(name, id) > (?, ?)", "x", row.ID).Where("(id, name) > (?, ?)", row.ID, "x"),
		"a question mark":   db.Where("id <> 1 AND '?' <> ?", 7, "x"),
		"without arguments": db.Where("id > 0"),
	} {
		err := handle.Session(&gorm.Session{DryRun: true}).Find(&[]plugintest.Pass{}).Error
		t.Run(name, func(t *testing.T) { must(t, err) })
	}
	plugintest.Rows(t, 1, db, "passes")
}
