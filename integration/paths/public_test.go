// wing: publicid

package paths_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type album struct {
	ID     publicid.ID[album]
	Title  string `gorm:"size:40"`
	Tracks []track
}

func (album) PublicPrefix() string { return "alb" }

type track struct {
	ID      publicid.ID[track]
	AlbumID publicid.ID[album] `gorm:"index"`
}

func (track) PublicPrefix() string { return "trk" }

func setKeys(t *testing.T) {
	t.Helper()
	keys, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	testkit.Must(t, err)
	testkit.Must(t, publicid.SetKeys(keys))
}

// A publicid.ID is a BIGINT in each database, for keys, foreign keys and conditions, and a text outside of it.
func TestPublic_IsABigintOnEveryEngine(t *testing.T) {
	setKeys(t)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, &gorm.Config{TranslateError: true})
		p := harness.Use(t, db, uidplugin.WithModels(&album{}, &track{}))
		testkit.Must(t, db.AutoMigrate(&album{}, &track{}))
		types, err := db.Migrator().ColumnTypes(&album{})
		testkit.Must(t, err)
		for _, c := range types {
			increments, _ := c.AutoIncrement()
			if name := strings.ToLower(c.DatabaseTypeName()); c.Name() == "id" && (increments || name != "bigint" && name != "int8" && name != "integer") {
				t.Errorf("the key is a %s, AUTO_INCREMENT %t", name, increments)
			}
		}
		row := album{Title: "a", Tracks: []track{{}, {}}}
		testkit.Must(t, db.Create(&row).Error)
		again := album{ID: row.ID, Title: "b"}
		testkit.Must(t, db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&again).Error)
		text, err := json.Marshal(row.ID)
		testkit.Must(t, err)
		found, err := publicid.Find(t.Context(), db.Preload("Tracks"), strings.Trim(string(text), `"`), uidplugin.OnlyModels(&album{}))
		testkit.Must(t, err)
		if a := found.(*album); a.Title != "b" || len(a.Tracks) != 2 || a.Tracks[0].AlbumID != row.ID {
			t.Errorf("%+v", a)
		}
		var tracks []track
		testkit.Must(t, db.Where(&track{AlbumID: row.ID}).Find(&tracks).Error)
		if l, err := p.Locate(t.Context(), uidplugin.ID(row.Tracks[1].ID)); len(tracks) != 2 || err != nil || !strings.HasSuffix(l.Table, "tracks") {
			t.Errorf("%d tracks, %+v, %v", len(tracks), l, err)
		}
		testkit.IsError(t, db.Create(&album{ID: row.ID}).Error, gorm.ErrDuplicatedKey)

		first := min(row.Tracks[0].ID, row.Tracks[1].ID)
		after, err := publicid.Parse[track](first.String())
		testkit.Must(t, err)
		tracks = nil
		testkit.Must(t, db.Where("id > ? AND album_id = ?", after, row.ID).Order("id").Find(&tracks).Error)
		if len(tracks) != 1 || tracks[0].ID == first {
			t.Errorf("after a cursor: %+v", tracks)
		}
	})
}

// MySQL and MariaDB convert a text to 0, so a condition could match all rows, and without strict mode they store 0. So the
// plugin must refuse such statements on each engine.
func TestPublic_TextsChangeNoRows(t *testing.T) {
	setKeys(t)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db, uidplugin.WithModels(&album{}, &track{}))
		testkit.Must(t, db.AutoMigrate(&album{}, &track{}))
		row := album{Title: "a", Tracks: []track{{}, {}}}
		testkit.Must(t, db.Create(&row).Error)
		sent := row.ID.String()
		testkit.Must(t, db.Connection(func(db *gorm.DB) error {
			db = db.Session(&gorm.Session{})
			if db.Name() == "mysql" {
				testkit.Must(t, db.Exec("SET SESSION sql_mode = ''").Error)
			}
			for _, c := range []struct {
				query string
				args  []any
			}{
				{"id <> ?", []any{sent}}, {"ID <> ?", []any{sent}}, {"(id) <> ?", []any{"x"}}, {"? <> id", []any{""}},
				{"(id, album_id) > (?, ?)", []any{sent, 0}}, {"ABS(id) <> ?", []any{&sent}},
				{"id + 0 NOT IN @ids", []any{map[string]any{"ids": []string{sent}}}},
			} {
				var tracks []track
				testkit.IsError(t, db.Where(c.query, c.args...).Find(&tracks).Error, publicid.ErrInvalid)
				testkit.IsError(t, db.Group("id, album_id").Having(c.query, c.args...).Find(&tracks).Error, publicid.ErrInvalid)
				testkit.IsError(t, db.Where(c.query, c.args...).Delete(&track{}).Error, publicid.ErrInvalid)
				testkit.IsError(t, db.Model(&track{}).Where(c.query, c.args...).Update("album_id", 0).Error, publicid.ErrInvalid)
				if len(tracks) != 0 {
					t.Errorf("%s: %d rows", c.query, len(tracks))
				}
			}
			for _, text := range []string{sent, "x", ""} {
				testkit.IsError(t, db.Model(&track{ID: row.Tracks[0].ID}).Update("album_id", text).Error, uidplugin.ErrField)
				testkit.IsError(t, db.Model(&track{ID: row.Tracks[0].ID}).UpdateColumn("id", text).Error, uidplugin.ErrField)
				testkit.IsError(t, db.Table("tracks").Where("1 = 1").Updates(map[string]any{"album_id": text}).Error, uidplugin.ErrField)
				testkit.IsError(t, db.Model(&track{}).Create(map[string]any{"album_id": text}).Error, uidplugin.ErrField)
			}
			return nil
		}))
		var after []track
		testkit.Must(t, db.Order("id").Find(&after).Error)
		slices.SortFunc(row.Tracks, func(a, b track) int { return cmp.Compare(a.ID, b.ID) })
		if !slices.Equal(after, row.Tracks) {
			t.Errorf("%v became %v", row.Tracks, after)
		}
	})
}
