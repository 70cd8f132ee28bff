package inspector

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

func TestLookup_ShowsWhereAnIDCameFrom(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := s.create(t, account{})
	a := s.create(t, account{
		Parent: parent.ID, Email: "<script>alert(1)</script>", Password: "secret", Data: []byte{0xff, 0x00}, Active: true,
		Made: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Share: 0.25, Tags: []string{"a", "b"},
	})
	status, body := get(t, s.handler, "/id?id="+a.ID.String())
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, words(body))
	}
	where, err := s.plugin.Locate(t.Context(), a.ID)
	testkit.Must(t, err)
	testkit.SaysAll(t, words(body), "Id "+a.ID.String(), "Table accounts", where.Session.Application, "Columns of the row",
		"&lt;script&gt;alert(1)&lt;/script&gt;", "password hidden", "note NULL", "data 0xff00", "active true", "share 0.25",
		"made 2026-06-01T12:00:00Z", `tags [&#34;a&#34;,&#34;b&#34;]`)
	if strings.Contains(body, "secret") || strings.Contains(body, "<script") {
		t.Error("the page has what it must not show")
	}
	if !strings.Contains(body, `<a class="id" href="id?id=`+parent.ID.String()+`">`) {
		t.Error("a key of another row is no link")
	}
}

func TestLookup_IsTheSameInJSON(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{Email: "ada@example.org"})
	status, f, _ := getJSON[struct {
		ID       uidplugin.ID
		Parts    parts
		Location struct {
			Table   string
			Session struct{ Slot int64 }
		}
		Row row
	}](t, s.handler, "/id?id="+a.ID.String())
	if status != http.StatusOK || f.ID != a.ID || f.Location.Table != "accounts" || f.Location.Session.Slot == 0 {
		t.Fatalf("%d, %+v", status, f)
	}
	p, err := s.plugin.Decode(a.ID)
	testkit.Must(t, err)
	if f.Parts != parts(p) {
		t.Errorf("%+v, want %+v", f.Parts, p)
	}
	_, body := get(t, s.handler, "/id?format=json&id="+a.ID.String())
	testkit.SaysAll(t, body, `"id": "`+a.ID.String()+`"`)
	values := map[string]string{}
	for _, c := range f.Row.Columns {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	if values["id"] != a.ID.String() || values["email"] != "ada@example.org" {
		t.Errorf("%v", values)
	}
}

func TestLookup_ReadsWhatPeoplePaste(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{})
	for _, text := range []string{" %s ", `"%s"`, `"%s",`, "'%s'", "\t%s\n", "`%s`", "\u00a0%s\u200b",
		"id=%s", "order_id: %s,", `{"row_id":"%s"}`} {
		typed := strings.ReplaceAll(text, "%s", a.ID.String())
		status, body := get(t, s.handler, "/id?id="+url.QueryEscape(typed))
		if status != http.StatusOK || !strings.Contains(body, `value="`+a.ID.String()+`"`) {
			t.Errorf("%q: %d", typed, status)
		}
	}
}

// A ticket has a public key.
type ticket struct{ ID uidplugin.Public[ticket] }

func (ticket) PublicPrefix() string { return "tkt" }

// A coupon has another one.
type coupon struct{ ID uidplugin.Public[coupon] }

func (coupon) PublicPrefix() string { return "cpn" }

// The text of another type with the number of a ticket was shown with the ticket's row.
func TestLookup_OfAPublicIDShowsARowOfItsTypeOnly(t *testing.T) {
	keys, err := publicid.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	testkit.Must(t, err)
	testkit.Must(t, uidplugin.SetPublicKeys(keys))
	s := open(t, WithModels(&ticket{}, &coupon{}))
	testkit.Must(t, s.db.AutoMigrate(&ticket{}, &coupon{}))
	row := ticket{}
	testkit.Must(t, s.db.Create(&row).Error)
	if status, body := get(t, s.handler, "/id?id="+row.ID.String()); status != http.StatusOK || !strings.Contains(words(body), "Columns of the row") {
		t.Errorf("%d: %s", status, words(body))
	}
	status, body := get(t, s.handler, "/id?id="+uidplugin.Public[coupon](row.ID).String())
	if status != http.StatusOK || strings.Contains(words(body), "Columns of the row") {
		t.Errorf("%d: %s", status, words(body))
	}
	testkit.SaysAll(t, words(body), "Table tickets", "prefix of another type")
}

// A number that JavaScript has rounded is often an id of another table, or one that was never made. The page named that
// table as if it were right.
func TestLookup_SaysThatANumberWasRounded(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{})
	for int64(float64(a.ID)) == int64(a.ID) {
		a = s.create(t, account{})
	}
	for _, n := range []uidplugin.ID{uidplugin.ID(float64(a.ID)), a.ID / 10_000 * 10_000} {
		_, body := get(t, s.handler, "/id?id="+n.String())
		testkit.SaysAll(t, words(body), "has rounded the number", "it may have been "+a.ID.String())
	}
	if _, body := get(t, s.handler, "/id?id="+a.ID.String()); strings.Contains(body, "rounded") {
		t.Errorf("an id with a row: %s", words(body))
	}
}

func TestLookup_SaysWhyANumberIsNoID(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := int64(s.create(t, account{}).ID)
	l := generator.DefaultLayout()
	day := int64(24*time.Hour/l.Tick) << (l.WorkerBits + l.SequenceBits)
	other, err := s.plugin.NextID(t.Context(), &order{})
	testkit.Must(t, err)
	unused, err := s.plugin.NextID(t.Context(), &account{})
	testkit.Must(t, err)
	for _, tt := range []struct {
		typed  string
		status int
		want   string
	}{
		{"", 400, "Type or paste an id."},
		{"  ", 400, "Type or paste an id."},
		{"abc", 400, "This is not an id: an id has up to 19 decimal digits."},
		{"12.5", 400, "This is not an id"},
		{"+5", 400, "no plus sign"},
		{"0x10", 400, "This is not an id"},
		{"\x00\xff<b>", 400, "This is not an id"},
		{strings.Repeat("9", 100_000), 400, "The number is too large"},
		{"-5", 400, "A negative number is never an id."},
		{"9223372036854775808", 400, "The number is too large: an id has at most 63 bits."},
		{"acc_0123456789abcdef", 400, "This is neither an id nor a public id of this application."},
		{"0", 404, "This number is too small for an id."},
		{"42", 404, "This number is too small for an id."},
		{uidplugin.ID(a + day).String(), 404, "No process has come that far"},
		{uidplugin.ID(a - day).String(), 404, "No process can have made this number, or the database has lost the commits of that time."},
		{uidplugin.ID(a | l.MaxWorkerID()<<l.SequenceBits).String(), 404, "No process can have made this number, or the database has lost the commits of that time."},
		{other.String(), 200, "The application does not let this page show rows of &#34;orders&#34;."},
		{unused.String(), 200, "There is no row with this key"},
	} {
		status, body := get(t, s.handler, "/id?id="+url.QueryEscape(tt.typed))
		if status != tt.status || !strings.Contains(words(body), tt.want) {
			t.Errorf("%.40q: %d, want %d and %q:\n%.600s", tt.typed, status, tt.status, tt.want, words(body))
		}
		if len(body) > 20_000 {
			t.Errorf("%.40q: %d bytes", tt.typed, len(body))
		}
		code, _, problem := getJSON[any](t, s.handler, "/id?id="+url.QueryEscape(tt.typed))
		if code != tt.status || (problem == nil) != (tt.status == 200) {
			t.Errorf("%.40q as JSON: %d, %+v", tt.typed, code, problem)
		}
	}
}

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
	_, body := get(t, s.handler, "/id?id="+a.ID.String())
	testkit.SaysAll(t, words(body), "email a…", "active true")
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

// Whatever its type, a column of bytes is shown as the database has it.
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

// A tag json:"-" hides the fields of an embedded struct. A value that does not fit its field is in no page, as it may be
// one that is masked.
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
		testkit.SaysAll(t, body, "The row cannot be read. The log says why")
	}
}

// A tool has none, and no tables of its own.
func TestHandler_OfAProcessWithoutModels(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{Email: "ada@example.org"})
	db, err := gorm.Open(s.db.Dialector, &gorm.Config{})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, testkit.Close(db)) })
	testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithoutMigration(), uidplugin.WithLogger(quiet))))
	h, err := New(db, WithLogger(quiet))
	testkit.Must(t, err)
	for page, want := range map[string]string{
		"/": "holds no slot now", "/tables": "This process has made no ids of a table.", "/slots": "live",
		"/sessions": "live", "/id?id=" + a.ID.String(): "This page shows no rows",
	} {
		status, body := get(t, h, page)
		if status != http.StatusOK || !strings.Contains(words(body), want) {
			t.Errorf("%s: %d, %s", page, status, words(body))
		}
	}
	testkit.Must(t, uidplugin.From(db).Close(t.Context()))
	_, body := get(t, h, "/")
	testkit.SaysAll(t, words(body), "This process holds no slot now")
}

func TestLookup_ReadsRowsUnderTheConditionsOfTheHandle(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.create(t, account{Active: true}), s.create(t, account{})
	h, err := New(s.db.Where("active"), WithModels(&account{}), WithLogger(quiet))
	testkit.Must(t, err)
	_, body := get(t, h, "/id?id="+a.ID.String())
	testkit.SaysAll(t, words(body), "Columns of the row")
	_, body = get(t, h, "/id?id="+b.ID.String())
	testkit.SaysAll(t, words(body), "There is no row with this key that this page may show")
}

func TestLookup_OfAFixedWorkerID(t *testing.T) {
	t.Parallel()
	s := openOn(t, testkit.SQLite{}.Open(t), []uidplugin.Option{uidplugin.WithWorkerID(7)})
	a := s.create(t, account{Email: "ada@example.org"})
	status, body := get(t, s.handler, "/id?id="+a.ID.String())
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, words(body))
	}
	testkit.SaysAll(t, words(body), "any: the worker id serves all tables", "does not say which table its row is in")
	for target, want := range map[string]string{
		"/": "This process has a fixed worker id.", "/slots": "There are no slots.", "/tables": "There are no worker ids.",
		"/sessions": "There are no such sessions.",
	} {
		status, body := get(t, s.handler, target)
		if status != http.StatusOK || !strings.Contains(words(body), want) {
			t.Errorf("%s: %d, %s", target, status, words(body))
		}
	}
}

// A time.Time after the year 9999 cannot be written as JSON, and ids of some layouts carry such times.
func TestHandler_WritesYearsAfter9999(t *testing.T) {
	t.Parallel()
	s := openOn(t, testkit.SQLite{}.Open(t), []uidplugin.Option{uidplugin.WithLayout(generator.Layout{TimeBits: 51, WorkerBits: 6, SequenceBits: 6, Tick: time.Millisecond, Epoch: time.UnixMilli(1582136402000)})})
	for target, want := range map[string]string{
		"/": `"ends": "9999-12-31T23:59:59Z"`, "/id?id=9223372036854775807": `"time": "73376-`,
	} {
		body := ask(t, s.handler, http.MethodGet, target, "Accept", "application/json").Body.String()
		if !strings.Contains(body, want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %s", target, body)
		}
	}
}

func TestFieldsWith_IsTheNumber(t *testing.T) {
	t.Parallel()
	for _, l := range []generator.Layout{
		generator.DefaultLayout(), generator.SnowflakeLayout(), generator.JSSafeLayout(),
		{TimeBits: 61, WorkerBits: 1, SequenceBits: 1}, {TimeBits: 1, WorkerBits: 1, SequenceBits: 1},
	} {
		for _, id := range []int64{0, 1, 1<<63 - 1, 1176816959799427126} {
			digits, bits := "", 0
			for _, f := range fieldsWith(l, id) {
				digits += f.Bits
				bits += f.Width
				if len(f.Bits) != f.Width || f.First != 63-len(digits)+f.Width {
					t.Errorf("%s: %+v", l, f)
				}
			}
			var back int64
			for _, d := range digits {
				back = back<<1 | int64(d-'0')
			}
			if bits != 64 || back != id {
				t.Errorf("%s: %d is %s", l, id, digits)
			}
		}
	}
}

// After "uid sessions prune" the page says that it does not know the process. It does not show a process without a name.
func TestLookup_OfAPrunedSession(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{})
	testkit.Must(t, s.db.Exec(`UPDATE WORKER_SESSION SET APPLICATION = '', HOST_NAME = '', PORT = '', TYPE = 0,
		HOLDER = ''`).Error)
	for target, says := range map[string]string{"/id?id=" + a.ID.String(): "not known", "/sessions": "no longer known"} {
		status, body := get(t, s.handler, target)
		if status != http.StatusOK || strings.Contains(body, " on , port") {
			t.Errorf("%s: %d, %s", target, status, words(body))
		}
		testkit.SaysAll(t, words(body), says)
		if target == "/sessions" && !strings.Contains(body, `<rect class="pruned"`) { // a solid bar claims that one held the slot
			t.Errorf("%s", body)
		}
	}
}
