package lookup

import (
	"errors"
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Callers tell ids apart by the errors of the root package. A failure that left this package as it is would look like an
// error of the database.
func TestLocatorErrorsOf_MakesTheErrorsOfIDs(t *testing.T) {
	t.Parallel()

	loc := &Locator{IDError: func(id int64, err error) error { return fmt.Errorf("id %d: %w", id, err) }}
	failures := failureForEach([]int64{7, 5, 6}, "%w: %d", ErrNoModel)
	for want, err := range map[string]error{
		"id 5: " + ErrNoModel.Error() + ": 5": loc.errorsOf(failures[1:2], []int64{5}),
		"id 6: " + ErrNoModel.Error() + ": 6\nid 5: " + ErrNoModel.Error() + ": 5\nid 7: " + ErrNoModel.Error() + ": 7": loc.errorsOf(
			failures, []int64{6, 5, 5, 7}),
	} {
		if err.Error() != want || !errors.Is(err, ErrNoModel) {
			t.Errorf("%v, want %s", err, want)
		}
		var failed *failure
		if errors.As(err, &failed) {
			t.Errorf("a failure in %v", err)
		}
	}
	broken := errors.New("the database is broken")
	if err := loc.errorsOf(append(failures, broken), []int64{5, 6, 7}); err.Error() != broken.Error() {
		t.Errorf("next to an error of a query: %v", err)
	}
	testkit.Must(t, loc.errorsOf(nil, nil))
}
