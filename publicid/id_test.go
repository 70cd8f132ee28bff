package publicid_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

var must = testkit.Must

// badPrefix has a prefix that publicid refuses.
type badPrefix struct{}

func (badPrefix) PublicPrefix() string { return "Bad!" }

func TestID_IsATextOutsideAndANumberInside(t *testing.T) {
	t.Parallel()

	keys := plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	row := plugintest.Pass{Notes: []plugintest.PassNote{{}, {}}}
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
	var back plugintest.Pass
	must(t, json.Unmarshal(text, &back))
	if back.ID != row.ID || back.Parent != 0 || len(back.Notes) != 2 || back.Notes[1] != row.Notes[1] || back.Notes[1].PassID != row.ID {
		t.Errorf("%s became %+v", text, back)
	}
	text, err = xml.Marshal(row.Notes[0])
	must(t, err)
	var note plugintest.PassNote
	must(t, xml.Unmarshal(text, &note))
	if note != row.Notes[0] {
		t.Errorf("%s became %+v", text, note)
	}
	text, err = json.Marshal(map[publicid.ID[plugintest.Pass]]int{row.ID: 1})
	must(t, err)
	if string(text) != `{"`+want+`":1}` {
		t.Errorf("%s", text)
	}

	var stored int64
	must(t, db.Raw("SELECT id FROM passes WHERE id = ?", row.ID).Scan(&stored).Error)
	if stored != int64(row.ID) {
		t.Errorf("the table has %d, the row %d", stored, int64(row.ID))
	}
	plugintest.IsOurs(t, db, "pass_notes", int64(row.Notes[0].ID))
	if err := plugintest.Bare(t).Create(&row).Error; err == nil || errors.Is(err, uidplugin.ErrZeroKey) { // there is no table
		t.Errorf("a key that is set: %v", err)
	}
	testkit.IsError(t, plugintest.Bare(t).Create(&plugintest.Pass{}).Error, uidplugin.ErrZeroKey)
}

// What users send is a text of this type, made with these keys, or an error. In particular it is no number, which could be
// guessed, and no empty text, which could become a condition that selects all rows.
func TestID_ReadsItsOwnTextsOnly(t *testing.T) {
	t.Parallel()

	keys := plugintest.TestKeys()
	codec, err := keys.Codec("tkt_note")
	must(t, err)
	right := codec.Encode(7)
	for name, text := range map[string]string{
		"another type": right, "a number": "7", "nothing": "", "digits": "1234567890123456789", "changed": "tkt_" + strings.Repeat("0", 26),
		"the prefix only": "tkt_", "no prefix": strings.TrimPrefix(right, "tkt_note_"), "a megabyte": strings.Repeat("9", 1<<20),
		"bytes": "tkt_\xff\x00", "underscores": strings.Repeat("_", 40),
	} {
		id := publicid.ID[plugintest.Pass](1)
		if err := id.UnmarshalText([]byte(text)); !errors.Is(err, publicid.ErrInvalid) || id != 1 || len(err.Error()) > 200 {
			t.Errorf("%s: %d, %.300v", name, int64(id), err)
		}
		quoted, err := json.Marshal(text)
		must(t, err)
		if err := json.Unmarshal(quoted, &id); !errors.Is(err, publicid.ErrInvalid) || id != 1 {
			t.Errorf("%s in JSON: %d, %.300v", name, int64(id), err)
		}
		if got, err := publicid.ParseAny(text); text != right && (!errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) || got != 0) {
			t.Errorf("ParseAny of %s: %d, %.300v", name, got, err)
		}
	}
	for _, text := range []string{"7", `{"a":1}`, `[1]`, `true`, `"`} {
		id := publicid.ID[plugintest.Pass](1)
		if err := id.UnmarshalJSON([]byte(text)); !errors.Is(err, publicid.ErrInvalid) || id != 1 {
			t.Errorf("%s: %d, %v", text, int64(id), err)
		}
	}
	if id, err := publicid.ParseAny(right); id != 7 || err != nil {
		t.Errorf("ParseAny: %d, %v", id, err)
	}
	testkit.IsError(t, new(publicid.ID[plugintest.PassNote]).Scan("x"), nil)
}

// bookA and bookB have one prefix: the texts of one could be read as ids of the other.
type (
	bookA struct{ ID publicid.ID[bookA] }
	bookB struct{ ID publicid.ID[bookB] }
	// bookView is another model of the table of bookA.
	bookView struct {
		ID publicid.ID[bookA]
	}
	bookBad struct {
		ID publicid.ID[badPrefix]
	}
)

func (bookA) PublicPrefix() string    { return "book" }
func (bookB) PublicPrefix() string    { return "book" }
func (bookView) TableName() string    { return "book_as" }
func (bookView) PublicPrefix() string { return "view" }
func (bookBad) TableName() string     { return "book_bads" }

func TestID_PrefixesAreCheckedWhenModelsAreListed(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	for name, c := range map[string]struct {
		models []any
		says   string
	}{
		"two types":    {[]any{&bookA{}, &bookB{}}, `"book_", as the texts of bookA do`},
		"no prefix":    {[]any{&bookBad{}}, `the prefix "Bad!"`},
		"two models":   {[]any{&bookA{}, &bookView{}}, ""},
		"one and more": {[]any{&bookB{}, &plugintest.Pass{}, &plugintest.PassNote{}}, ""},
	} {
		err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(c.models...)))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Keys of type int64 often have the option, so that JavaScript keeps them; it stays when the type becomes ID.
func TestID_InJSONWithTheOptionString(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	type stub struct {
		ID   publicid.ID[plugintest.Pass]  `json:"id,string"`
		Next *publicid.ID[plugintest.Pass] `json:"next,string"`
	}
	next := publicid.ID[plugintest.Pass](8)
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

func TestSetKeys_Once(t *testing.T) {
	t.Parallel()

	keys := plugintest.TestKeys()
	other, err := publicid.NewKeys(bytes.Repeat([]byte("fedcba9876543210"), 2))
	must(t, err)
	same, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	must(t, err)
	for _, keys := range []*publicid.Keys{keys, same} {
		must(t, publicid.SetKeys(keys))
	}
	more, err := publicid.NewKeys(bytes.Repeat([]byte("fedcba9876543210"), 2), bytes.Repeat([]byte("0123456789abcdef"), 2))
	must(t, err)
	for name, keys := range map[string]*publicid.Keys{"other keys": other, "more keys": more, "nil": nil, "no keys": {}} {
		t.Run(name, func(t *testing.T) { testkit.IsError(t, publicid.SetKeys(keys), publicid.ErrConfig) })
	}
	testkit.IsError(t, plugintest.Second(json.Marshal(publicid.ID[badPrefix](7))), publicid.ErrConfig)
	if text, err := json.Marshal(publicid.ID[*plugintest.Pass](7)); err != nil || !strings.Contains(string(text), "pass_") && !strings.Contains(string(text), "tkt_") {
		t.Errorf("of a pointer: %s, %v", text, err)
	}
	testkit.IsError(t, plugintest.Second(json.Marshal(publicid.ID[publicid.Type](7))), publicid.ErrConfig) // of an interface
	var none *gorm.DB
	testkit.IsError(t, plugintest.Second(publicid.Find(t.Context(), none, "")), uidplugin.ErrNotRegistered)
}

// Without keys nothing may show the number instead. It runs in a process of its own, because keys can be set only once.
func TestID_WithoutKeys(t *testing.T) {
	t.Parallel()

	const inside = "UID_TEST_WITHOUT_KEYS"
	if os.Getenv(inside) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestID_WithoutKeys$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestID_WithoutKeys") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	id := publicid.ID[plugintest.Pass](1234567)
	testkit.IsError(t, plugintest.Second(json.Marshal(id)), publicid.ErrConfig)
	testkit.IsError(t, json.Unmarshal([]byte(`"tkt_7bhznb3dzqhphb87gmm2kvym2c"`), &id), publicid.ErrConfig)
	if _, err := publicid.ParseAny("tkt_7bhznb3dzqhphb87gmm2kvym2c"); !errors.Is(err, publicid.ErrConfig) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("parsed: %v", err)
	}
	if text := id.String(); strings.Contains(text, "1234567") || !strings.Contains(text, "SetKeys") {
		t.Errorf("as a text: %s", text)
	}
	var log plugintest.Journal
	plugintest.Open(t, log.Option(), uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	if lines := log.Lines("SetKeys was not called"); len(lines) != 1 {
		t.Errorf("warnings: %q", lines)
	}
}
