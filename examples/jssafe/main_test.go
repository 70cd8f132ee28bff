package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dop251/goja"
	"github.com/uidplugin/uidplugin/generator"
)

func TestRun(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	first, rest, ok := strings.Cut(out.String(), "\n2. ")
	second, third, ok2 := strings.Cut(rest, "\n3. ")
	if !ok || !ok2 {
		t.Fatal(out.String())
	}

	// Of numbers of 63 bits one in 64 or fewer survive; the others are lost, and
	// what they become leads to another row.
	var lost int
	if _, err := fmt.Sscanf(first[strings.Index(first, "\n\n"):], "\n\n%d of 1500 ids", &lost); err != nil || lost < 1400 || lost >= 1500 {
		t.Errorf("%d ids were lost, %v", lost, err)
	}
	there, back := ways(t, first)
	a, err := strconv.ParseInt(there, 10, 64)
	b, err2 := strconv.ParseInt(back, 10, 64)
	if err != nil || err2 != nil || a == b || max(a, b)-min(a, b) > 1000 || !strings.Contains(first, "which is another one") {
		t.Errorf("%s became %s", there, back)
	}
	if there, back := ways(t, second); there != back || there[0] != '"' || !strings.Contains(second, "Find: the invoice with the total 42\n") {
		t.Errorf("%s became %s", there, back)
	}
	if there, back := ways(t, third); there != back || there[0] == '"' {
		t.Errorf("%s became %s", there, back)
	}
	for _, want := range []string{
		"  0 of 1500 ids came back as another number\n", "  1500 of them JavaScript takes apart as Go does\n",
		"Locate: table orders, worker id ", "Find: the order with the total 1499\n",
		"DefaultLayout       9223372036854775807  9223372036854776000  false\n",
		"JSSafeTablesLayout  9007199254740991     9007199254740991     true\n",
	} {
		if !strings.Contains(third, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

var id = regexp.MustCompile(`Go sends: +\{"id":([^,]+),.*\n +JavaScript has: \{"id":([^,]+),`)

// ways returns the id of the row that is shown, as Go sends it and as JavaScript has it.
func ways(t *testing.T, text string) (there, back string) {
	t.Helper()
	m := id.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no id in %s", text)
	}
	return m[1], m[2]
}

// TestThrough checks with ids at the ends of what JavaScript can hold that the engine
// loses what a browser does.
func TestThrough(t *testing.T) {
	t.Parallel()

	s := show{js: goja.New()}
	for sent, want := range map[int64]string{
		0: "0", generator.JSSafeTablesLayout().MaxID(): "9007199254740991",
		1<<53 + 1: "9007199254740992", 1<<53 + 3: "9007199254740996",
		generator.DefaultLayout().MaxID(): "9223372036854776000", 960471235618152742: "960471235618152700",
	} {
		var n json.Number
		if _, back, err := s.through(sent, &n); err != nil || back != want || n.String() != want {
			t.Errorf("%d became %s, %s; want %s (%v)", sent, back, n, want, err)
		}
	}
}
