package inspector

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

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
