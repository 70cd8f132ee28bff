package page_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// documents is where the pictures are.
const documents = "../../docs"

// maxPicture is how many bytes a picture may have.
const maxPicture = 120_000

// TestScreenshots takes the pictures of the documents, with -update. Without it, it checks that they are there and
// small.
func TestScreenshots(t *testing.T) {
	names := []string{"id", "slots", "sessions"}
	if *update {
		takeScreenshots(t, names)
	}
	for _, name := range names {
		for _, scheme := range []string{"light", "dark"} {
			data, err := os.ReadFile(filepath.Join(documents, "inspector-"+name+"-"+scheme+".png"))
			testkit.Must(t, err)
			picture, err := png.DecodeConfig(bytes.NewReader(data))
			if err != nil || picture.Width < 1000 || len(data) > maxPicture {
				t.Errorf("%s, %s: %d bytes, %+v, %v", name, scheme, len(data), picture, err)
			}
		}
	}
}

func takeScreenshots(t *testing.T, names []string) {
	b := open(t)
	s, _ := live(t)
	history(t, s)
	var customer uidplugin.ID
	testkit.Must(t, s.db.Raw("SELECT MAX(id) FROM shop_customers").Scan(&customer).Error)
	for _, name := range names {
		url := name
		if name == "id" {
			url = "id?id=" + customer.String()
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

// history gives the live processes, which are in the slots 1 to 6, a past: an outage of a quarter of an hour, and
// processes that had their slots before. Two more slots have processes that have ended.
func history(t *testing.T, s *site) {
	const minute = int64(time.Minute / time.Millisecond)
	layout := s.plugin.Layout()
	now := layout.TickAt(time.Now())
	applications := []string{"uid", "shop-api", "shop-api", "shop-api", "shop-worker", "shop-import"}
	for slot := int64(1); slot <= 6; slot++ {
		launched := now - (150+slot*5%7*12)*minute
		testkit.Must(t, s.db.Exec("UPDATE WORKER_SESSION SET START_TICK = ?, BEFORE_TICK = ?, LAUNCHED = ? WHERE SLOT = ?",
			now-80*minute, now-95*minute, layout.TimeOf(launched), slot).Error)
		ended := launched - (1+slot%3*slot*4)*minute // of the process before
		testkit.Must(t, s.db.Exec(insertSession+`SELECT SLOT, ?, ?, APPLICATION, HOST_NAME, PORT, TYPE, LAUNCHED, HOLDER`+
			` FROM WORKER_SESSION WHERE SLOT = ?`, launched, ended, slot).Error)
		for i := range 1 + slot%3 {
			start := ended - (40+(slot+i*3)%5*15)*minute
			ended = start - minute
			s.insertSession(t, slot, start, ended, applications[slot-1], fmt.Sprintf("node-%d.example.org", 1+(slot+i)%5))
		}
	}
	for slot, held := range map[int64]string{7: "", 8: "x"} {
		start, seen := now-(slot*20+110)*minute, now-(slot*15-70)*minute
		testkit.Must(t, s.db.Exec(insertSlot+`VALUES (?, ?, 1, ?, 1, ?, ?, 'shop-import', 'node-3.example.org', 'pid-2214')`,
			slot, layout.String(), seen+10_000, held, seen).Error)
		s.insertSession(t, slot, start, 0, "shop-import", "node-3.example.org")
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
