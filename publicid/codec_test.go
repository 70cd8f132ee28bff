package publicid_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
)

// key returns a key whose bytes count up from first.
func key(first byte) []byte {
	k := make([]byte, publicid.KeySize)
	for i := range k {
		k[i] = first + byte(i)
	}
	return k
}

func codec(tb testing.TB, prefix string, keys ...[]byte) *publicid.Codec {
	tb.Helper()
	k, err := publicid.NewKeys(keys...)
	must(tb, err)
	c, err := k.Codec(prefix)
	must(tb, err)
	return c
}

// Texts that were given out must stay valid: a change of the format breaks every URL. The texts were made by OpenSSL's
// AES and Python's HMAC.
func TestCodecEncode_MakesTheTextsOfTheFormat(t *testing.T) {
	t.Parallel()

	c := codec(t, "ord", key(0))
	for id, want := range map[int64]string{
		0:                   "ord_0c8sv5hf8mm5jd1f7rhc84yw6x",
		1:                   "ord_3j18fry0k68r08vqynda778rs7",
		2124472963691474944: "ord_75m2xyjacf2eapsd58drmc0g0v",
		math.MaxInt64:       "ord_5py8dcm88kb6tk4qv61we2yv8e",
	} {
		if got := c.Encode(id); got != want {
			t.Errorf("Encode(%d) = %s, want %s", id, got, want)
		}
		if got, err := c.Decode(want); err != nil || got != id {
			t.Errorf("Decode(%s) = %d, %v, want %d", want, got, err, id)
		}
	}
}

// The error is the same whatever part of the text was changed, and no id is returned.
func TestCodecDecode_RefusesEverythingElse(t *testing.T) {
	t.Parallel()

	c := codec(t, "ord", key(0))
	good := c.Encode(4711)
	bad := []string{
		"", "ord", "ord_", good[4:], good[:29], good + "0", " " + good, good + "\n", strings.ToUpper(good), "ORD" + good[3:],
		"usr" + good[3:], "or_" + good[4:], strings.Repeat("0", 1<<20), "ord_" + strings.Repeat("0", 26), "ord_" + strings.Repeat("z", 26),
		codec(t, "usr", key(0)).Encode(4711), codec(t, "ord", key(1)).Encode(4711),
		"ord_" + codec(t, "usr", key(0)).Encode(4711)[4:], // the text of another type with this prefix
	}
	for i := 4; i < len(good); i++ { // each character, changed to each other one and to what is no character
		for _, r := range "0123456789abcdefghijklmnopqrstuvwxyzA-_é" {
			if text := good[:i] + string(r) + good[i+1:]; text != good {
				bad = append(bad, text)
			}
		}
	}
	for _, text := range bad {
		if id, err := c.Decode(text); !errors.Is(err, publicid.ErrInvalid) || id != 0 {
			t.Errorf("Decode(%.60q) = %d, %v", text, id, err)
		}
	}
}

// A rotation: the new key comes last, then first; then the old one goes.
func TestKeys_Rotation(t *testing.T) {
	t.Parallel()

	old, both, turned, last := codec(t, "ord", key(0)), codec(t, "ord", key(0), key(9)), codec(t, "ord", key(9), key(0)), codec(t, "ord", key(9))
	before, after := old.Encode(7), last.Encode(7)
	if both.Encode(7) != before || turned.Encode(7) != after || before == after {
		t.Error("the first key does not encode")
	}
	for _, c := range []*publicid.Codec{both, turned} {
		for _, text := range []string{before, after} {
			if id, err := c.Decode(text); err != nil || id != 7 {
				t.Errorf("Decode(%s) = %d, %v", text, id, err)
			}
		}
	}
	testkit.IsError(t, plugintest.Second(last.Decode(before)), publicid.ErrInvalid)
}

// A configuration that is printed or logged as a whole must not show the secrets.
func TestKeys_AreNotPrinted(t *testing.T) {
	t.Parallel()

	keys, err := publicid.NewKeys(bytes.Repeat([]byte("secret-!"), 4), bytes.Repeat([]byte("hushhush?"), 4)[:32])
	must(t, err)
	codec, err := keys.Codec("ord")
	must(t, err)
	type config struct {
		Keys  *publicid.Keys
		Copy  publicid.Keys
		own   publicid.Keys
		keys  *publicid.Keys
		codec *publicid.Codec
		value publicid.Codec // package fmt does not call the Format of an unexported field
	}
	var out bytes.Buffer
	c := config{keys, *keys, *keys, keys, codec, *codec}
	for _, v := range []any{keys, *keys, c, &c, []config{c}, codec, *codec, map[string]any{"keys": keys}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q", "%X"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("a", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("a", "v", v)
		text, err := json.Marshal(v)
		must(t, err)
		out.Write(text)
	}
	for _, secret := range []string{"secret-", "hush", "115 101 99", "0x73, 0x65", "736563", "0x68", "104 117", "687573", "check:"} {
		if strings.Contains(strings.ToLower(out.String()), secret) {
			t.Errorf("%q is in the output", secret)
		}
	}
	if got := fmt.Sprint(keys, publicid.Keys{}, codec); got != "publicid.Keys(2 hidden) publicid.Keys(0 hidden) publicid.Codec(ord_)" {
		t.Error(got)
	}
}

func TestKeys_RefusesKeysAndPrefixesThatCannotBeUsed(t *testing.T) {
	t.Parallel()

	for _, keys := range [][][]byte{nil, {nil}, {key(0)[:31]}, {append(key(0), 0)}, {make([]byte, 32)}, {bytes.Repeat([]byte("k"), 32)}, {key(0), key(1), key(0)}} {
		_, err := publicid.NewKeys(keys...)
		testkit.IsError(t, err, publicid.ErrConfig)
	}
	k, err := publicid.NewKeys(key(0))
	must(t, err)
	for _, prefix := range []string{"", "_", "a_", "1a", "_a", "A", "a-b", "ä", "a b", strings.Repeat("a", 33)} {
		testkit.IsError(t, plugintest.Second(k.Codec(prefix)), publicid.ErrConfig)
	}
	testkit.IsError(t, plugintest.Second(new(publicid.Keys).Codec("ord")), publicid.ErrConfig) // this panicked
	for _, prefix := range []string{"a", "order", "a1_b2", strings.Repeat("a", 32)} {
		c := codec(t, prefix, key(0))
		if id, err := c.Decode(c.Encode(5)); err != nil || id != 5 || len(c.Encode(5)) != len(prefix)+27 {
			t.Errorf("the prefix %q: %d, %v", prefix, id, err)
		}
	}
}

// The key that a caller keeps may be overwritten: a codec has its own.
func TestNewKeys_CopiesTheKeys(t *testing.T) {
	t.Parallel()

	k := key(0)
	keys, err := publicid.NewKeys(k)
	must(t, err)
	clear(k)
	c, err := keys.Codec("ord")
	must(t, err)
	if got := c.Encode(1); got != "ord_3j18fry0k68r08vqynda778rs7" {
		t.Error(got)
	}
}

// A Codec is used by all requests of a server at once.
func TestCodec_ConcurrentUse(t *testing.T) {
	t.Parallel()

	c := codec(t, "ord", key(0), key(1))
	var group sync.WaitGroup
	for g := range int64(8) {
		group.Go(func() {
			for i := range int64(1000) {
				id := g*1_000_000 + i
				if got, err := c.Decode(c.Encode(id)); err != nil || got != id {
					t.Errorf("%d: %d, %v", id, got, err)
				}
			}
		})
	}
	group.Wait()
}

func TestCodecEncode_AllocatesOnlyTheText(t *testing.T) {
	c := codec(t, "ord", key(0))
	if n := testing.AllocsPerRun(100, func() { _ = c.Encode(5) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCodecRoundTrip(f *testing.F) {
	f.Add(int64(0), byte(0))
	f.Add(int64(math.MinInt64), byte(200))
	f.Fuzz(func(t *testing.T, id int64, first byte) {
		c := codec(t, "ord", key(first))
		if got, err := c.Decode(c.Encode(id)); err != nil || got != id {
			t.Errorf("%d: %d, %v", id, got, err)
		}
	})
}

// No text but those of Encode is accepted, and none panics.
func FuzzCodecDecode(f *testing.F) {
	f.Add("ord_0c8sv5hf8mm5jd1f7rhc84yw6x")
	f.Add("ord_")
	f.Fuzz(func(t *testing.T, text string) {
		c := codec(t, "ord", key(0))
		if id, err := c.Decode(text); err == nil && c.Encode(id) != text {
			t.Errorf("Decode(%q) = %d, which is %q", text, id, c.Encode(id))
		}
	})
}

func BenchmarkCodecEncode(b *testing.B) {
	c := codec(b, "ord", key(0))
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Encode(2124472963691474944)
	}
}

func BenchmarkCodecDecode(b *testing.B) {
	c := codec(b, "ord", key(0))
	text := c.Encode(2124472963691474944)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

// The error tells a programmer what is wrong with a text, such as the wrong type of id. It does not distinguish a
// changed text from one of another key.
func TestCodecDecode_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	orders, customers, foreign := codec(t, "ord", key(1)), codec(t, "cus", key(1)), codec(t, "ord", key(2))
	text, wrong := orders.Encode(7), foreign.Encode(7)
	for of, want := range map[string]string{
		customers.Encode(7):                  `does not begin with "ord_"`,
		"":                                   `"" does not begin with "ord_"`,
		"7":                                  `"7" does not begin with "ord_"`,
		text[:20]:                            `has 16 characters after "ord_", and must have 26`,
		text + "0":                           `has 27 characters after "ord_"`,
		strings.ToUpper(text[:3]) + text[3:]: `does not begin with "ord_"`,
		text[:29] + "u":                      `has a wrong character after "ord_"`,
		wrong:                                strconv.Quote(wrong) + " was changed, or was made with another key",
		strings.Repeat("x", 1000):            "does not begin",
	} {
		_, err := orders.Decode(of)
		if testkit.IsError(t, err, publicid.ErrInvalid, want); len(fmt.Sprint(err)) > 200 {
			t.Errorf("the error is long: %v", err)
		}
	}
}
