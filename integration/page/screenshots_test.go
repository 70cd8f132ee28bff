package page_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// documents is where the pictures are.
const documents = "../../docs"

// maxPicture is how many bytes a picture may have.
const maxPicture = 120_000

// TestScreenshots takes the pictures of the documents, with -update. Without it, it checks that they are there and small.
func TestScreenshots(t *testing.T) {
	names := []string{"id", "slots", "sessions", "overview"}
	if *update {
		takeScreenshots(t, names)
	}
	for _, name := range names {
		for _, scheme := range []string{"light", "dark"} {
			data, err := os.ReadFile(filepath.Join(documents, "inspector-"+name+"-"+scheme+".png"))
			testkit.Must(t, err)
			if picture, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || picture.Width < 1000 || len(data) > maxPicture {
				t.Errorf("%s, %s: %d bytes, %+v, %v", name, scheme, len(data), picture, err)
			}
		}
	}
}

func takeScreenshots(t *testing.T, names []string) {
	b := open(t)
	s, ids := live(t)
	history(t, s)
	for _, name := range names {
		url := name
		switch name {
		case "id":
			url = "id?id=" + ids[0]
		case "overview":
			url = ""
		}
		for _, scheme := range []string{"light", "dark"} {
			b.colours(scheme)
			b.resize(1100, 300)
			b.visit(s.url + url)
			b.resize(1100, min(eval[int64](b, "document.documentElement.scrollHeight"), 900))
			var data []byte
			b.run(chromedp.CaptureScreenshot(&data))
			testkit.Must(t, os.WriteFile(filepath.Join(documents, "inspector-"+name+"-"+scheme+".png"), small(t, data), 0o644))
		}
	}
}

// history inserts sessions of the last hours before those of the live processes.
func history(t *testing.T, s *site) {
	now := s.plugin.Layout().TickAt(time.Now())
	hosts := []string{"ops", "node-1", "node-2", "node-3", "node-4", "node-5"}
	for slot := int64(1); slot <= 6; slot++ {
		application := "shop-api"
		if slot > 4 {
			application = []string{"shop-worker", "shop-import"}[slot-5]
		}
		for i := range 3 + slot%3 {
			ago := (i*7 + slot*5%11 + 2) * 37 * 60_000
			s.insertSession(t, slot, now-ago, application, hosts[(slot+i)%6]+".example.org")
		}
	}
	layout := s.plugin.Layout()
	for slot, held := range map[int64]string{7: "", 8: "x"} {
		testkit.Must(t, s.db.Exec(`INSERT INTO WORKER_SLOT (ID, LAYOUT, REUSABLE, FENCE, VERSION, HOLDER, SEEN_TICK, APPLICATION, HOST_NAME, PORT)
			VALUES (?, ?, 1, ?, 1, ?, ?, 'shop-import', 'node-3.example.org', 'pid-2214')`, slot, layout.String(), now-3_000_000*slot+10_000, held, now-3_000_000*slot).Error)
		s.insertSession(t, slot, now-9_000_000*slot/4, "shop-import", "node-3.example.org")
	}
}

// small writes a picture with the 256 colours that it has most of: a page has few.
func small(t *testing.T, data []byte) []byte {
	picture, err := png.Decode(bytes.NewReader(data))
	testkit.Must(t, err)
	count := map[color.Color]int{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	var palette color.Palette
	for c := range count {
		palette = append(palette, c)
	}
	slices.SortFunc(palette, func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	palette = palette[:min(len(palette), 256)]
	index := map[color.Color]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	few := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			few.SetColorIndex(x, y, index[picture.At(x, y)])
		}
	}
	var out bytes.Buffer
	testkit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few))
	return out.Bytes()
}
