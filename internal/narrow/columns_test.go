package narrow_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// SQLite keeps 64 bits in all columns but those of a REAL type, which lose digits without an error.
func TestColumns_OfTypeRealOnSQLite(t *testing.T) {
	t.Parallel()

	type sample struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Next *uidplugin.ID
		Text string
	}
	db, j := plugintest.Bare(t), &plugintest.Journal{}
	must(t, db.Exec("CREATE TABLE samples (id INT PRIMARY KEY, next REAL, text VARCHAR(3))").Error)
	plugintest.Use(t, db, j.Option(), uidplugin.WithModels(&sample{}))
	if lines := j.Lines("too narrow"); len(lines) != 1 {
		t.Errorf("logged %q", lines)
	}
	row, big := sample{Text: "longer than three"}, uidplugin.ID(1<<60+1)
	must(t, db.Create(&row).Error)
	for name, err := range map[string]error{
		"create": db.Create(&sample{Next: &big}).Error,
		"update": db.Model(&row).Update("next", big).Error,
		"map":    db.Model(&sample{}).Create([]map[string]any{{}, {"next": big}}).Error,
	} {
		if !errors.Is(err, uidplugin.ErrField) {
			t.Errorf("%s: %v", name, err)
		} else {
			saysAll(t, err.Error(), "sample.Next", "1152921504606846977", "samples", "REAL", "again")
		}
	}
	must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Model(&row).Update("next", int64(1)<<53).Error }))
	if n := plugintest.Count(t, db, "samples"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// A dry run builds the statement, and reads nothing for it.
func TestColumns_OfADryRunAreNotRead(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithWorkerID(1))
	sql := db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Create(&plugintest.Part{}) })
	saysAll(t, sql, "INSERT INTO `parts`")
}

// MySQL without strict mode would store 0 for a text that reaches a column of numbers.
func TestColumns_RefuseTextsForNumbers(t *testing.T) {
	t.Parallel()

	type mixed struct {
		ID   uint64 `gorm:"primaryKey;uid"`
		Key  uidplugin.ID
		Next *uidplugin.ID
		Ref  string `gorm:"uid"`
		Name string
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &mixed{})
	row := mixed{Key: 5, Ref: "five"}
	must(t, db.Create(&row).Error)
	of := func() *gorm.DB { return db.Model(&mixed{ID: row.ID}) }
	for _, column := range []string{"id", "key", "next"} {
		for _, text := range []any{"x", "", "1e3", []byte("x"), sql.NullString{String: "x", Valid: true}, gorm.Expr("?", "x")} {
			for name, err := range map[string]error{
				"Update":       of().Update(column, text).Error,
				"UpdateColumn": of().UpdateColumn(strings.ToUpper(column), text).Error,
				"Updates":      of().Updates(map[string]any{"name": "n", column: text}).Error,
				"a table":      db.Table("mixeds").Where("name = ''").Updates(map[string]any{column: text}).Error,
				"create":       of().Create(map[string]any{"id": 7, "name": "n", column: text}).Error,
				"creates":      of().Create([]map[string]any{{"id": 8}, {"id": 9, column: text}}).Error,
				"a conflict": db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}},
					DoUpdates: clause.Assignments(map[string]any{column: text})}).Create(&mixed{ID: row.ID}).Error,
			} {
				if column == "id" && text == "" && (name == "create" || name == "creates") {
					must(t, err) // a key that is to be made
				} else if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "parse it") {
					t.Errorf("%s of %s to %v: %v", name, column, text, err)
				}
			}
		}
	}
	for name, err := range map[string]error{
		"another struct": of().Updates(struct{ Key string }{"x"}).Error,
		"another column": of().UpdateColumns(struct{ Next string }{"x"}).Error,
	} {
		if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "mixed.") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, of().Updates(map[string]any{"next": "12", "key": row.Key, "ref": "x", "name": "x"}).Error)
	must(t, of().Update("next", gorm.Expr("CASE name WHEN ? THEN next ELSE 0 END", "x")).Error)
	must(t, of().Update("next", nil).Error)
	var got mixed
	must(t, db.First(&got, row.ID).Error)
	if got != (mixed{ID: row.ID, Key: 5, Ref: "x", Name: "x"}) {
		t.Errorf("%+v", got)
	}
}
