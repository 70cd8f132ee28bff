package inspector

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/generator"
)

// The page counts the worker ids as WORKER_NODE gives them out: none has the number 0.
func TestOverview_CountsTheWorkerIDs(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, data, problem := getJSON[struct {
		Space struct {
			WorkerIDs int64 `json:"worker_ids"`
		} `json:"space"`
	}](t, s.handler, "/")
	if want := generator.DefaultLayout().MaxWorkerID(); problem != nil || data.Space.WorkerIDs != want {
		t.Errorf("%+v, %v, want %d worker ids", data, problem, want)
	}
	if page := ask(t, s.handler, "GET", "/").Body.String(); !strings.Contains(page, "262,143") {
		t.Error("the page does not have the number")
	}
}
