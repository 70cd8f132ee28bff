package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// An answer is the content of a page, before it becomes HTML or JSON.
type answer struct {
	template string // name of the template, without .html; empty if there is only a problem
	title    string // of the page
	typed    string // content of the id form
	data     any
	problem  *problem // nil if the page is complete
	cause    error    // database error; the log has it once per outage, or each time with ofRow
	ofRow    bool     // the error concerns one row, so only the log has the cause
}

// A problem explains why a page is incomplete.
type problem struct {
	Status  int    `json:"status"` // HTTP status
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"` // error text
}

func newProblem(status int, message string, err error) *problem {
	p := &problem{Status: status, Message: message}
	if err != nil {
		p.Detail = fmt.Sprintf("%.*s", maxText, err.Error()) // truncated: it may contain text from the query
	}
	return p
}

func refused(status int, message string) answer {
	return answer{title: http.StatusText(status), problem: newProblem(status, message, nil)}
}

// unreadable returns the problem for a database error.
func (h *handler) unreadable(ctx context.Context, err error) *problem {
	message := "The database cannot be read."
	switch {
	case context.Cause(ctx) == errBusy:
		return newProblem(http.StatusServiceUnavailable,
			"Too many pages read the database at once. Try again.", nil)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		message = "The database did not answer within " + h.limit.String() + "."
	}
	return newProblem(http.StatusServiceUnavailable, message, err)
}

// failed returns the page with a database error in place of its data.
func (h *handler) failed(ctx context.Context, a answer, err error) answer {
	a.problem, a.cause, a.data = h.unreadable(ctx, err), err, nil
	return a
}
