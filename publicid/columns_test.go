package publicid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// MySQL without strict mode would store 0 for a text that reaches a column of numbers.
func TestColumns_RefusePublicIDsForNumbers(t *testing.T) {
	t.Parallel()

	type mixed struct {
		ID     uint64 `gorm:"primaryKey;uid"`
		Public publicid.ID[plugintest.Pass]
		Next   *uidplugin.ID
		Ref    string `gorm:"uid"`
		Name   string
	}
	plugintest.TestKeys()
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &mixed{})
	row := mixed{Public: 5, Ref: "five"}
	must(t, db.Create(&row).Error)
	public := row.Public.String()
	of := func() *gorm.DB { return db.Model(&mixed{ID: row.ID}) }
	for _, column := range []string{"id", "public", "next"} {
		for _, text := range []any{public, []byte(public), gorm.Expr("?", public), gorm.Expr("COALESCE("+column+", ?)", public)} {
			for name, err := range map[string]error{
				"Update":       of().Update(column, text).Error,
				"UpdateColumn": of().UpdateColumn(strings.ToUpper(column), text).Error,
				"a table":      db.Table("mixeds").Where("name = ''").Updates(map[string]any{column: text}).Error,
				"creates":      of().Create([]map[string]any{{"id": 8}, {"id": 9, column: text}}).Error,
				"a conflict": db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}},
					DoUpdates: clause.Assignments(map[string]any{column: text})}).Create(&mixed{ID: row.ID}).Error,
			} {
				if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "parse it") {
					t.Errorf("%s of %s to %v: %v", name, column, text, err)
				}
			}
		}
	}
	testkit.IsError(t, of().Updates(struct{ Public string }{public}).Error, uidplugin.ErrField)
	must(t, of().Updates(map[string]any{"public": row.Public, "ref": public, "name": public}).Error)
	var got mixed
	must(t, db.First(&got, row.ID).Error)
	if got != (mixed{ID: row.ID, Public: 5, Ref: public, Name: public}) {
		t.Errorf("%+v", got)
	}
}
