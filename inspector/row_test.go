package inspector

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestLookup_MasksColumns(t *testing.T) {
	t.Parallel()
	s := open(t, WithMask(func(table, column string, value any) any {
		switch {
		case table != "accounts":
			t.Errorf("table %q", table)
		case column == "password":
			t.Error("a hidden column is masked")
		case column == "email":
			return value.(string)[:1] + "…"
		}
		want := map[string]any{"tags": `["a"]`, "note": (*string)(nil), "active": true}[column]
		if want != nil && want != value {
			t.Errorf("%s is %#v", column, value)
		}
		return value
	}))
	a := s.create(t, account{Email: "ada@example.org", Active: true, Tags: []string{"a"}})
	body := shows(t, s.handler, http.StatusOK, "/id?id="+a.ID.String(), "email a…", "active true")
	if strings.Contains(body, "ada@") {
		t.Error("the column is not masked")
	}
}

// A letter has types of bytes that are not []byte.
type letter struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Body json.RawMessage
	Seal seal
}

type seal []byte

// A column of bytes is shown as the database stores it, whatever its type.
func TestLookup_ShowsBytesOfEachType(t *testing.T) {
	t.Parallel()
	s := open(t)
	testkit.Must(t, s.plugin.AutoMigrate(&letter{}))
	h, err := New(s.db, WithLogger(quiet), WithModels(&letter{}))
	testkit.Must(t, err)
	for _, tt := range []struct {
		letter
		want []any // text, or nil for NULL, of each column but the key
	}{
		{letter{Body: json.RawMessage(`{"a":1}`), Seal: seal{1, 255}}, []any{`{"a":1}`, "0x01ff"}},
		{letter{}, []any{nil, nil}},
	} {
		testkit.Must(t, s.db.Create(&tt.letter).Error)
		_, data, problem := getJSON[struct {
			Row struct{ Columns []struct{ Value any } }
		}](t, h, "/id?id="+tt.ID.String())
		if len(data.Row.Columns) != 3 {
			t.Fatalf("%+v, %+v", data, problem)
		}
		for i, want := range tt.want {
			if got := data.Row.Columns[i+1].Value; got != want {
				t.Errorf("%#v, want %#v", got, want)
			}
		}
	}
}

// A vault has values that the page must not show.
type vault struct {
	ID     uidplugin.ID `gorm:"primaryKey;uid"`
	Pin    int
	Inner  secret  `gorm:"embedded" json:"-"`
	Other  *secret `gorm:"embedded;embeddedPrefix:other_" json:"-"`
	Public secret  `gorm:"embedded;embeddedPrefix:public_"`
}

type secret struct {
	Token string
	Code  string `json:"-"`
}

// A tag json:"-" hides the fields of an embedded struct. A value that does not fit its field is in no page, as it may
// be one that is masked.
func TestLookup_ShowsNoValueThatIsHidden(t *testing.T) {
	t.Parallel()
	s := open(t)
	v := vault{Pin: 1, Inner: secret{"hush", "hush"}, Other: &secret{"hush", "hush"}, Public: secret{"seen", "hush"}}
	testkit.Must(t, s.plugin.AutoMigrate(&vault{}))
	testkit.Must(t, s.db.Create(&v).Error)
	h, err := New(s.db, WithLogger(quiet), WithModels(&vault{}), WithMask(func(_, column string, value any) any {
		if column == "pin" {
			return "masked"
		}
		return value
	}))
	testkit.Must(t, err)
	for _, target := range []string{"/id?id=" + v.ID.String(), "/id?format=json&id=" + v.ID.String()} {
		status, body := get(t, h, target)
		if status != http.StatusOK || strings.Contains(body, "hush") {
			t.Errorf("%d: %s", status, body)
		}
		testkit.SaysAll(t, body, "seen", "masked")
	}
	testkit.Must(t, s.db.Exec("UPDATE vaults SET pin = 'hush'").Error)
	for _, target := range []string{"/id?id=" + v.ID.String(), "/id?format=json&id=" + v.ID.String()} {
		status, body := get(t, h, target)
		if status != http.StatusServiceUnavailable || strings.Contains(body, "hush") {
			t.Errorf("%d: %s", status, body)
		}
		testkit.SaysAll(t, body, "The row cannot be read. The reason is in the log")
	}
}

func TestLookup_ReadsRowsUnderTheConditionsOfTheHandle(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.create(t, account{Active: true}), s.create(t, account{})
	h, err := New(s.db.Where("active"), WithModels(&account{}), WithLogger(quiet))
	testkit.Must(t, err)
	shows(t, h, http.StatusOK, "/id?id="+a.ID.String(), "Columns of the row")
	shows(t, h, http.StatusOK, "/id?id="+b.ID.String(), "There is no row with this key that this page may show")
}
