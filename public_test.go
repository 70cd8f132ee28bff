package uidplugin_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// pass has a public key.
type pass struct {
	ID     uidplugin.Public[pass]
	Parent uidplugin.Public[pass]
	Notes  []passNote `json:",omitempty"`
}

func (pass) PublicPrefix() string { return "tkt" }

type passNote struct {
	ID     uidplugin.Public[passNote]
	PassID uidplugin.Public[pass]
}

func (passNote) PublicPrefix() string { return "tkt_note" }

// badPrefix has a prefix that publicid refuses.
type badPrefix struct{}

func (badPrefix) PublicPrefix() string { return "Bad!" }

// testKeys are those of all tests of this package: they can be set only once.
var testKeys = sync.OnceValue(func() *publicid.Keys {
	keys, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	if err == nil {
		err = uidplugin.SetPublicKeys(keys)
	}
	if err != nil {
		panic(err)
	}
	return keys
})

func TestPublic_IsATextOutsideAndANumberInside(t *testing.T) {
	t.Parallel()

	keys := testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{})
	row := pass{Notes: []passNote{{}, {}}}
	must(t, db.Create(&row).Error)
	codec, err := keys.Codec("tkt")
	must(t, err)
	want := codec.Encode(int64(row.ID))
	if got := fmt.Sprintf("%v %s", row.ID, row.ID); got != want+" "+want || row.ID == 0 {
		t.Errorf("%s, want %s", got, want)
	}
	text, err := json.Marshal(row)
	must(t, err)
	if !bytes.Contains(text, []byte(`"ID":"`+want+`","Parent":null`)) || bytes.Contains(text, []byte(uidplugin.ID(row.ID).String())) {
		t.Errorf("%s", text)
	}
	var back pass
	must(t, json.Unmarshal(text, &back))
	if back.ID != row.ID || back.Parent != 0 || len(back.Notes) != 2 || back.Notes[1] != row.Notes[1] || back.Notes[1].PassID != row.ID {
		t.Errorf("%s became %+v", text, back)
	}
	text, err = xml.Marshal(row.Notes[0])
	must(t, err)
	var note passNote
	must(t, xml.Unmarshal(text, &note))
	if note != row.Notes[0] {
		t.Errorf("%s became %+v", text, note)
	}
	text, err = json.Marshal(map[uidplugin.Public[pass]]int{row.ID: 1})
	must(t, err)
	if string(text) != `{"`+want+`":1}` {
		t.Errorf("%s", text)
	}

	var stored int64
	must(t, db.Raw("SELECT id FROM passes WHERE id = ?", row.ID).Scan(&stored).Error)
	if stored != int64(row.ID) {
		t.Errorf("the table has %d, the row %d", stored, int64(row.ID))
	}
	var loaded pass
	must(t, db.Preload("Notes").First(&loaded, row.ID).Error)
	if loaded.ID != row.ID || len(loaded.Notes) != 2 {
		t.Errorf("%+v", loaded)
	}
	if l, err := uidplugin.From(db).Locate(t.Context(), uidplugin.ID(row.Notes[0].ID)); err != nil || l.Table != "pass_notes" {
		t.Errorf("%+v, %v", l, err)
	}
	if err := bare(t).Create(&row).Error; err == nil || errors.Is(err, uidplugin.ErrZeroKey) { // there is no table
		t.Errorf("a key that is set: %v", err)
	}
	if err := bare(t).Create(&pass{}).Error; !errors.Is(err, uidplugin.ErrZeroKey) {
		t.Errorf("a handle without the plugin: %v", err)
	}
}

// What users send is a text of this type, made with these keys, or an error. In particular it is no number, which could be
// guessed, and no empty text, which could become a condition that selects all rows.
func TestPublic_ReadsItsOwnTextsOnly(t *testing.T) {
	t.Parallel()

	keys := testKeys()
	codec, err := keys.Codec("tkt_note")
	must(t, err)
	right := codec.Encode(7)
	for name, text := range map[string]string{
		"another type": right, "a number": "7", "nothing": "", "digits": "1234567890123456789", "changed": "tkt_" + strings.Repeat("0", 26),
		"the prefix only": "tkt_", "no prefix": strings.TrimPrefix(right, "tkt_note_"), "a megabyte": strings.Repeat("9", 1<<20),
		"bytes": "tkt_\xff\x00", "underscores": strings.Repeat("_", 40),
	} {
		id := uidplugin.Public[pass](1)
		if err := id.UnmarshalText([]byte(text)); !errors.Is(err, publicid.ErrInvalid) || id != 1 || len(err.Error()) > 200 {
			t.Errorf("%s: %d, %.300v", name, int64(id), err)
		}
		quoted, err := json.Marshal(text)
		must(t, err)
		if err := json.Unmarshal(quoted, &id); !errors.Is(err, publicid.ErrInvalid) || id != 1 {
			t.Errorf("%s in JSON: %d, %.300v", name, int64(id), err)
		}
		if got, err := uidplugin.ParsePublicID(text); text != right && (!errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) || got != 0) {
			t.Errorf("ParsePublicID of %s: %d, %.300v", name, got, err)
		}
	}
	for _, text := range []string{"7", `{"a":1}`, `[1]`, `true`, `"`} {
		id := uidplugin.Public[pass](1)
		if err := id.UnmarshalJSON([]byte(text)); !errors.Is(err, publicid.ErrInvalid) || id != 1 {
			t.Errorf("%s: %d, %v", text, int64(id), err)
		}
	}
	if id, err := uidplugin.ParsePublicID(right); id != 7 || err != nil {
		t.Errorf("ParsePublicID: %d, %v", id, err)
	}
	var id uidplugin.Public[passNote]
	if err := id.Scan("x"); err == nil {
		t.Error("a column with x was read")
	}
}

func TestPlugin_FindPublic(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{})
	row := pass{Notes: []passNote{{}}}
	must(t, db.Create(&row).Error)
	p := uidplugin.From(db)
	found, err := p.FindPublic(t.Context(), row.ID.String())
	if got, ok := found.(*pass); !ok || got.ID != row.ID || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	for name, err := range map[string]error{
		"not listed": second(p.FindPublic(t.Context(), row.Notes[0].ID.String(), uidplugin.OnlyModels(&pass{}))),
		"a number":   second(p.FindPublic(t.Context(), uidplugin.ID(row.ID).String())),
		"no row":     second(p.FindPublic(t.Context(), (row.ID + 1<<40).String())),
		"tampered":   second(p.FindPublic(t.Context(), strings.Replace(row.ID.String(), "tkt_", "tkt_note_", 1))),
	} {
		if !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := uidplugin.From(bare(t)).FindPublic(t.Context(), row.ID.String()); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// The number of a text may be that of a row of another type, because something wrote the key of one as the key of the
// other. The text is refused, as it does not name such a row.
func TestPlugin_FindPublicRefusesTheTextOfAnotherType(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}, &part{}))
	migrate(t, db, &pass{}, &passNote{}, &part{})
	row, plain := pass{Notes: []passNote{{}}}, part{}
	must(t, db.Create(&row).Error)
	must(t, db.Create(&plain).Error)
	old := pass{ID: 3}
	must(t, db.Create(&old).Error)
	for name, wrong := range map[string]uidplugin.Public[passNote]{
		"an id": uidplugin.Public[passNote](row.ID), "a key from before": uidplugin.Public[passNote](old.ID),
		"a key that is not public": uidplugin.Public[passNote](plain.ID),
	} {
		for _, options := range [][]uidplugin.FindOption{nil, {uidplugin.OnlyModels(&pass{})}} {
			found, err := uidplugin.From(db).FindPublic(t.Context(), wrong.String(), options...)
			if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		}
		if found, err := uidplugin.FindPublicAs[pass](t.Context(), db, wrong.String()); found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s as a pass: %v, %v", name, found, err)
		}
	}
}

func TestFindPublicAs(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{}, &bookView{})
	row := pass{}
	must(t, db.Create(&row).Error)
	text := row.ID.String()
	if id, err := uidplugin.ParsePublic[pass](text); id != row.ID || err != nil {
		t.Errorf("ParsePublic: %d, %v", int64(id), err)
	}
	if found, err := uidplugin.FindPublicAs[pass](t.Context(), db, text); err != nil || found.ID != row.ID {
		t.Errorf("%v, %v", found, err)
	}
	for name, c := range map[string]struct {
		db   *gorm.DB
		text string
	}{
		"another type":   {db, uidplugin.Public[passNote](row.ID).String()},
		"a number":       {db, uidplugin.ID(row.ID).String()},
		"nothing":        {db, ""},
		"no row":         {db, (row.ID + 1<<40).String()},
		"not the user's": {db.Where("parent = 7"), text},
	} {
		found, err := uidplugin.FindPublicAs[pass](t.Context(), c.db, c.text)
		if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) || strings.Contains(err.Error(), "find "+uidplugin.ID(row.ID).String()) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	for _, text := range []string{uidplugin.Public[passNote](row.ID).String(), uidplugin.ID(row.ID).String(), ""} {
		if id, err := uidplugin.ParsePublic[pass](text); id != 0 || !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) {
			t.Errorf("ParsePublic(%q): %d, %v", text, int64(id), err)
		}
	}
	if _, err := uidplugin.ParsePublic[badPrefix](text); !errors.Is(err, publicid.ErrConfig) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[bookView](t.Context(), db, text); !errors.Is(err, uidplugin.ErrNotKey) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("the key is of another type: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[pass](t.Context(), bare(t), text); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// MySQL takes a text for 0 where a number is expected, so a delete with one deleted all rows.
func TestPublic_RefusesConditionsWithTexts(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t)
	migrate(t, db, &pass{}, &passNote{})
	row := pass{Notes: []passNote{{}}}
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
		"a subquery":       db.Where("id IN (?)", db.Model(&passNote{}).Select("pass_id").Where("id > ?", text)),
	} {
		var n int64
		for kind, err := range map[string]error{
			"query": handle.Session(&gorm.Session{}).Find(&[]pass{}).Error, "count": handle.Session(&gorm.Session{}).Model(&pass{}).Count(&n).Error,
			"update": handle.Session(&gorm.Session{}).Model(&pass{}).Update("parent", 0).Error,
			"delete": handle.Session(&gorm.Session{}).Delete(&pass{}).Error,
		} {
			if !errors.Is(err, publicid.ErrInvalid) || !strings.Contains(err.Error(), "uidplugin.ParsePublic[uidplugin_test.pass]") {
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
		if err := handle.Session(&gorm.Session{DryRun: true}).Find(&[]pass{}).Error; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := count(t, db, "passes"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
}

// bookA and bookB have one prefix: the texts of one could be read as ids of the other.
type (
	bookA struct{ ID uidplugin.Public[bookA] }
	bookB struct{ ID uidplugin.Public[bookB] }
	// bookView is another model of the table of bookA.
	bookView struct {
		ID uidplugin.Public[bookA]
	}
	bookBad struct {
		ID uidplugin.Public[badPrefix]
	}
)

func (bookA) PublicPrefix() string    { return "book" }
func (bookB) PublicPrefix() string    { return "book" }
func (bookView) TableName() string    { return "book_as" }
func (bookView) PublicPrefix() string { return "view" }
func (bookBad) TableName() string     { return "book_bads" }

func TestPublic_PrefixesAreCheckedWhenModelsAreListed(t *testing.T) {
	t.Parallel()

	testKeys()
	for name, c := range map[string]struct {
		models []any
		says   string
	}{
		"two types":    {[]any{&bookA{}, &bookB{}}, `"book" is also that of bookA`},
		"no prefix":    {[]any{&bookBad{}}, `the prefix "Bad!"`},
		"two models":   {[]any{&bookA{}, &bookView{}}, ""},
		"one and more": {[]any{&bookB{}, &pass{}, &passNote{}}, ""},
	} {
		err := bare(t).Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(c.models...)))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rows from before the plugin have small keys, which say nothing of their table. The prefix of the text does.
func TestPlugin_FindPublicFindsRowsFromBefore(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{})
	must(t, db.Create(&pass{ID: 3}).Error)
	p := uidplugin.From(db)
	row, err := p.FindPublic(t.Context(), uidplugin.Public[pass](3).String(), uidplugin.OnlyModels(&pass{}))
	if found, ok := row.(*pass); !ok || found.ID != 3 || err != nil {
		t.Errorf("%v, %v", row, err)
	}
	// Two tables with keys of one type: nothing says which of them it is.
	type archived struct {
		ID uidplugin.Public[pass]
	}
	migrate(t, db, &archived{})
	must(t, db.Create(&archived{ID: 3}).Error)
	both := uidplugin.OnlyModels(&pass{}, &archived{})
	if row, err := p.FindPublic(t.Context(), uidplugin.Public[pass](3).String(), both); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("two tables: %v, %v", row, err)
	}
	var later archived
	must(t, db.Create(&later).Error)
	if row, err := p.FindPublic(t.Context(), later.ID.String(), both); err != nil || row.(*archived).ID != later.ID {
		t.Errorf("an id of the plugin: %v, %v", row, err)
	}
	shard := open(t, uidplugin.WithModels(&pass{}), uidplugin.WithDatabaseName("shard"))
	migrate(t, shard, &pass{})
	must(t, shard.Create(&pass{ID: 3}).Error)
	if row, err := uidplugin.From(shard).FindPublic(t.Context(), uidplugin.Public[pass](3).String()); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("one of several databases: %v, %v", row, err)
	}
	for name, text := range map[string]string{"no row": uidplugin.Public[pass](4).String(), "another table": uidplugin.Public[passNote](3).String()} {
		_, err := p.FindPublic(t.Context(), text)
		if !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), " 3") || strings.Contains(err.Error(), " 4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Keys of type int64 often have the option, so that JavaScript keeps them; it stays when the type becomes Public.
func TestPublic_InJSONWithTheOptionString(t *testing.T) {
	t.Parallel()

	testKeys()
	type stub struct {
		ID   uidplugin.Public[pass]  `json:"id,string"`
		Next *uidplugin.Public[pass] `json:"next,string"`
	}
	next := uidplugin.Public[pass](8)
	for _, want := range []stub{{ID: 7, Next: &next}, {}} {
		text, err := json.Marshal(want)
		must(t, err)
		var got stub
		if err := json.Unmarshal(text, &got); err != nil || got.ID != want.ID || (got.Next == nil) != (want.Next == nil) || got.Next != nil && *got.Next != next {
			t.Errorf("%s became %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"id":"7"}`, `{"id":7}`, `{"id":""}`, `{"id":"\"7\""}`, `{"id":true}`} {
		var got stub
		if err := json.Unmarshal([]byte(text), &got); err == nil || got.ID != 0 {
			t.Errorf("%s became %+v", text, got)
		}
	}
}

// Not parallel: no other test may use the keys meanwhile. Without keys nothing may show the number instead.
func TestSetPublicKeys_Once(t *testing.T) {
	keys := testKeys()
	other, err := publicid.NewKeys(bytes.Repeat([]byte("fedcba9876543210"), 2))
	must(t, err)
	same, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	must(t, err)
	for _, keys := range []*publicid.Keys{keys, same} {
		if err := uidplugin.SetPublicKeys(keys); err != nil {
			t.Errorf("the same keys: %v", err)
		}
	}
	more, err := publicid.NewKeys(bytes.Repeat([]byte("fedcba9876543210"), 2), bytes.Repeat([]byte("0123456789abcdef"), 2))
	must(t, err)
	for name, keys := range map[string]*publicid.Keys{"other keys": other, "more keys": more, "nil": nil, "no keys": {}} {
		if err := uidplugin.SetPublicKeys(keys); !errors.Is(err, uidplugin.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := uidplugin.Public[badPrefix](7)
	if text, err := json.Marshal(bad); !errors.Is(err, publicid.ErrConfig) {
		t.Errorf("a bad prefix: %s, %v", text, err)
	}
	uidplugin.WithoutPublicKeys(func() {
		id := uidplugin.Public[pass](1234567)
		if text, err := json.Marshal(id); !errors.Is(err, uidplugin.ErrOption) {
			t.Errorf("%s, %v", text, err)
		}
		if err := json.Unmarshal([]byte(`"tkt_7bhznb3dzqhphb87gmm2kvym2c"`), &id); !errors.Is(err, uidplugin.ErrOption) {
			t.Errorf("read: %v", err)
		}
		if _, err := uidplugin.ParsePublicID("tkt_7bhznb3dzqhphb87gmm2kvym2c"); !errors.Is(err, uidplugin.ErrOption) || errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("parsed: %v", err)
		}
		if text := id.String(); strings.Contains(text, "1234567") || !strings.Contains(text, "SetPublicKeys") {
			t.Errorf("as a text: %s", text)
		}
	})
	if text, err := json.Marshal(uidplugin.Public[*pass](7)); err != nil || !strings.Contains(string(text), "pass_") && !strings.Contains(string(text), "tkt_") {
		t.Errorf("of a pointer: %s, %v", text, err)
	}
	if text, err := json.Marshal(uidplugin.Public[uidplugin.PublicType](7)); !errors.Is(err, publicid.ErrConfig) {
		t.Errorf("of an interface: %s, %v", text, err)
	}
	var log journal
	uidplugin.WithoutPublicKeys(func() { open(t, log.option(), uidplugin.WithModels(&pass{}, &passNote{})) })
	if lines := log.Lines("SetPublicKeys was not called yet"); len(lines) != 1 {
		t.Errorf("warnings: %q", lines)
	}
	var none *gorm.DB
	if _, err := uidplugin.From(none).FindPublic(t.Context(), ""); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without a handle: %v", err)
	}
}
