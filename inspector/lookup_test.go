package inspector

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
)

func TestLookup_ShowsWhereAnIDCameFrom(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := s.create(t, account{})
	a := s.create(t, account{
		Parent: parent.ID, Email: "<script>alert(1)</script>", Password: "secret", Data: []byte{0xff, 0x00}, Active: true,
		Made: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Share: 0.25, Tags: []string{"a", "b"},
	})
	where, err := s.plugin.Locate(t.Context(), a.ID)
	testkit.Must(t, err)
	body := shows(t, s.handler, http.StatusOK, "/id?id="+a.ID.String(),
		"Id "+a.ID.String(), "Table accounts", where.Session.Application, "Columns of the row",
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

type ticket struct{ ID publicid.ID[ticket] }

func (ticket) PublicPrefix() string { return "tkt" }

type coupon struct{ ID publicid.ID[coupon] }

func (coupon) PublicPrefix() string { return "cpn" }

// Formerly the text of another type with the number of a ticket was shown with the ticket's row.
func TestLookup_OfAPublicIDShowsARowOfItsTypeOnly(t *testing.T) {
	keys, err := publicid.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	testkit.Must(t, err)
	testkit.Must(t, publicid.SetKeys(keys))
	s := open(t, WithModels(&ticket{}, &coupon{}))
	testkit.Must(t, s.db.AutoMigrate(&ticket{}, &coupon{}))
	row := ticket{}
	testkit.Must(t, s.db.Create(&row).Error)
	shows(t, s.handler, http.StatusOK, "/id?id="+row.ID.String(), "Columns of the row")
	other := "/id?id=" + publicid.ID[coupon](row.ID).String()
	if body := shows(t, s.handler, http.StatusOK, other, "Table tickets", "belongs to another type"); strings.Contains(
		words(body), "Columns of the row") {
		t.Error(words(body))
	}
}

// A number that JavaScript has rounded is often an id of another table, or one that was never made. Formerly the page
// named that table as if it were right.
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
		{uidplugin.ID(a + day).String(), 404, "The time in this number is in the future"},
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

func TestLookup_OfAFixedWorkerID(t *testing.T) {
	t.Parallel()
	s := openOn(t, testkit.SQLite{}.Open(t), []uidplugin.Option{uidplugin.WithWorkerID(7)})
	a := s.create(t, account{Email: "ada@example.org"})
	shows(t, s.handler, http.StatusOK, "/id?id="+a.ID.String(),
		"any: the worker id serves all tables", "so the table of the row is unknown")
	for target, want := range map[string]string{
		"/": "This process has a fixed worker id.", "/slots": "There are no slots.", "/tables": "There are no worker ids.",
		"/sessions": "No sessions match.",
	} {
		shows(t, s.handler, http.StatusOK, target, want)
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
		body := shows(t, s.handler, http.StatusOK, target, says)
		if strings.Contains(body, " on , port") {
			t.Error(words(body))
		}
		if target == "/sessions" && !strings.Contains(body, `<rect class="pruned"`) { // a solid bar claims that one held the slot
			t.Errorf("%s", body)
		}
	}
}
