package workernode

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
)

// Errors that a later attempt may not meet are not shown at first. Errors that may pass fail no caller.
func TestSeverityOf_SaysWhatAnErrorMeansForThoseWhoWait(t *testing.T) {
	t.Parallel()

	readOnly := errors.New("Error 1290 (HY000): The MySQL server is running with the --super-read-only option so it cannot execute this statement")
	deadlock, refused := errors.New("Error 1213 (40001): Deadlock found"), errors.New("Error 1142 (42000): UPDATE command denied")
	for _, tt := range []struct {
		err         error
		first, last severity // of the first two in a row, and of the third
	}{
		{deadlock, brief, serious},
		{context.DeadlineExceeded, serious, serious},
		{driver.ErrBadConn, serious, fatal},
		{refused, fatal, fatal},
		{readOnly, fatal, fatal},
	} {
		for failures, want := range map[int]severity{1: tt.first, 2: tt.first, 3: tt.last, 100: tt.last} {
			if got := severityOf(fmt.Errorf("workernode: %w", tt.err), failures); got != want {
				t.Errorf("%v, %d in a row: %d, want %d", tt.err, failures, got, want)
			}
		}
	}
}
