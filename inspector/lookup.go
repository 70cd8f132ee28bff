package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/publicid" // wing: publicid
	"gorm.io/gorm"
)

// The type found has what the page shows about one number.
type found struct {
	ID       uidplugin.ID        `json:"id"`
	Parts    *parts              `json:"parts,omitempty"` // nil if the number cannot be split
	Fields   []field             `json:"fields"`
	Location *uidplugin.Location `json:"location,omitempty"` // nil if no process can have made the id, or if unread
	Row      *row                `json:"row,omitempty"`      // if Location is nil, the database numbered the row
}

// parts is [generator.Parts] for JSON.
type parts struct {
	Time     time.Time `json:"time"`
	WorkerID int64     `json:"worker_id"`
	Sequence int64     `json:"sequence"`
}

// MarshalJSON also writes years after 9999, which some layouts reach and time.Time refuses.
func (p parts) MarshalJSON() ([]byte, error) {
	type plain parts
	return json.Marshal(struct {
		Time string `json:"time"`
		plain
	}{iso(p.Time), plain(p)})
}

// lookup describes the number in the query.
func (h *handler) lookup(ctx context.Context, query url.Values) answer {
	typed := query.Get("id")
	a := answer{template: "id", title: "Id", typed: typed}
	id, public, problem := parse(typed)
	if problem != nil {
		a.problem = problem
		return a
	}
	a.typed, a.title = id.String(), "Id "+id.String()
	f := found{ID: id, Fields: fieldsWith(h.layout, int64(id))}
	if p, err := h.plugin.Decode(id); err == nil {
		f.Parts = (*parts)(&p)
	}
	location, err := h.plugin.Locate(ctx, id)
	switch {
	case errors.Is(err, uidplugin.ErrNoSuchID):
		r, _ := h.row(ctx, uidplugin.Location{ID: id}, public)
		if r != nil && r.Reason == "" && !errors.Is(err, uidplugin.ErrNotDecodable) {
			f.Row = r // numbered by the database
			break
		}
		a.problem = newProblem(statusOf(err), sentence(err)+h.rounded(ctx, id), err)
	case err != nil:
		a.problem, a.cause = h.unreadable(ctx, err), err
	default:
		f.Location = &location
		f.Row, err = h.row(ctx, location, public)
		if err != nil {
			a.problem, a.cause, a.ofRow = h.unreadable(ctx, err), err, true
			a.problem.Detail = "The row cannot be read. The reason is in the log, because it may contain values that this " +
				"page masks."
		}
	}
	a.data = f
	return a
}

// parse reads an id as people paste it, such as with quotes or a comma. For a public id it also returns the text.
func parse(typed string) (id uidplugin.ID, public string, p *problem) {
	text := admin.TrimID(typed)
	if text == "" {
		return 0, "", newProblem(http.StatusBadRequest, "Type or paste an id.", nil)
	}
	id, err := uidplugin.ParseID(text)
	switch {
	case err == nil && id < 0:
		return 0, "", newProblem(http.StatusBadRequest, "A negative number is never an id.", nil)
	case err == nil:
		return id, "", nil
	case errors.Is(err, strconv.ErrRange):
		return 0, "", newProblem(http.StatusBadRequest, "The number is too large: an id has at most 63 bits.", err)
	case !strings.Contains(text, "_"):
		return 0, "", newProblem(http.StatusBadRequest, "This is not an id: an id has up to 19 decimal digits.", err)
	}
	var n int64
	n, err = publicid.ParseAny(text) // wing: publicid
	if err != nil {
		return 0, "", newProblem(http.StatusBadRequest, "This is neither an id nor a public id of this application.", err)
	}
	return uidplugin.ID(n), text, nil
}

func statusOf(err error) int {
	if errors.Is(err, uidplugin.ErrNegativeID) {
		return http.StatusBadRequest
	}
	return http.StatusNotFound
}

// sentence explains why a number is not an id.
func sentence(err error) string {
	switch {
	case errors.Is(err, uidplugin.ErrFutureID):
		return "The time in this number is in the future, so no process can have made it yet."
	case errors.Is(err, uidplugin.ErrOtherLayout):
		return "Another program or another layout uses this worker id, so the parts below are not valid."
	case errors.Is(err, uidplugin.ErrNotDecodable):
		return "This number is too small for an id. It may be a key from before the plugin, or from a segment."
	case errors.Is(err, generator.ErrLayout):
		return "This number has more bits than an id of this layout."
	}
	return "No process can have made this number, or the database has lost the commits of that time."
}

// rowProblem explains why the page cannot show the row of an id; "" for a database error.
func rowProblem(models int, table string, err error) string {
	switch {
	case errors.Is(err, publicid.ErrInvalid): // wing: publicid
		return fmt.Sprintf("The prefix of this public id belongs to another type: its number is an id of the table %q.", table) // wing: publicid
	case errors.Is(err, gorm.ErrRecordNotFound):
		return "There is no row with this key that this page may show: it was not inserted, or it is deleted."
	case errors.Is(err, uidplugin.ErrOtherDatabase):
		return "The row is in another database: use the page of an application that uses that database."
	case errors.Is(err, uidplugin.ErrNoModel) && table == "":
		return "The worker id serves all tables, so the table of the row is unknown."
	case errors.Is(err, uidplugin.ErrNoModel) && models == 0:
		return "This page shows no rows, because no models are listed for it."
	case errors.Is(err, uidplugin.ErrNoModel):
		return fmt.Sprintf("The application does not let this page show rows of %q.", table)
	case errors.Is(err, uidplugin.ErrNotKey), errors.Is(err, uidplugin.ErrNoSuchID):
		return "The id does not identify one row: " + err.Error()
	}
	return ""
}
