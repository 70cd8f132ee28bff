package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// An answer is what a page says, before it is written as HTML or JSON.
type answer struct {
	template string   // of templates, without .html; empty for a page of the problem only
	title    string   // of the page
	typed    string   // what the form for an id shows
	data     any      // nil if there is none
	problem  *problem // nil if all is well
	cause    error    // of the database; it is logged
}

// A problem says why a page cannot show what it was asked for.
type problem struct {
	Status  int    `json:"status"`           // of HTTP
	Message string `json:"message"`          // a sentence
	Detail  string `json:"detail,omitempty"` // the text of an error
}

func newProblem(status int, message string, err error) *problem {
	p := &problem{Status: status, Message: message}
	if err != nil {
		p.Detail = fmt.Sprintf("%.*s", maxText, err.Error()) // it may have a text of the query
	}
	return p
}

// refused returns a page that has nothing but a problem.
func refused(status int, message string, err error) answer {
	return answer{title: http.StatusText(status), problem: newProblem(status, message, err)}
}

// unreadable returns the problem of an error of the database.
func (h *handler) unreadable(ctx context.Context, err error) *problem {
	message := "The database cannot be read."
	switch {
	case context.Cause(ctx) == errBusy:
		return newProblem(http.StatusServiceUnavailable,
			"Too many pages read the database at once, and it is slow: try again.", nil)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		message = "The database did not answer within " + h.limit.String() + "."
	}
	return newProblem(http.StatusServiceUnavailable, message, err)
}

// failed adds an error of the database to a page.
func (h *handler) failed(ctx context.Context, a answer, err error) answer {
	a.problem, a.cause, a.data = h.unreadable(ctx, err), err, nil
	return a
}
