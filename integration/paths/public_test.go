package paths_test

import (
	"bytes"
	"encoding/json"
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
	ID     uidplugin.Public[album]
	Title  string `gorm:"size:40"`
	Tracks []track
}

func (album) PublicPrefix() string { return "alb" }

type track struct {
	ID      uidplugin.Public[track]
	AlbumID uidplugin.Public[album] `gorm:"index"`
}

func (track) PublicPrefix() string { return "trk" }

// A public key is a plain BIGINT on every engine, for keys, foreign keys and conditions, and a text for everybody else.
func TestPublic_IsABigintOnEveryEngine(t *testing.T) {
	keys, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	testkit.Must(t, err)
	testkit.Must(t, uidplugin.SetPublicKeys(keys))
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
		found, err := uidplugin.From(db.Preload("Tracks")).FindPublic(t.Context(), strings.Trim(string(text), `"`), uidplugin.OnlyModels(&album{}))
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

		// MySQL takes a text for 0, so that all rows met these conditions.
		sent := row.ID.String()
		testkit.IsError(t, db.Where("id > ?", sent).Find(&tracks).Error, publicid.ErrInvalid)
		testkit.IsError(t, db.Where("id <> ?", sent).Delete(&track{}).Error, publicid.ErrInvalid)
		testkit.IsError(t, db.Model(&track{}).Where("id <> ?", sent).Update("album_id", 0).Error, publicid.ErrInvalid)
		first := min(row.Tracks[0].ID, row.Tracks[1].ID)
		after, err := uidplugin.ParsePublic[track](first.String())
		testkit.Must(t, err)
		tracks = nil
		testkit.Must(t, db.Where("id > ? AND album_id = ?", after, row.ID).Order("id").Find(&tracks).Error)
		if len(tracks) != 1 || tracks[0].ID == first {
			t.Errorf("after a cursor: %+v", tracks)
		}
	})
}
