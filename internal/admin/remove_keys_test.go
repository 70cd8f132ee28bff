package admin

import (
	"context"
	"errors"
	"testing"
)

// Without an error the database would number keys from the largest key on, which ids of deleted rows may have exceeded.
func TestFirstFree_ReportsAFailedQuery(t *testing.T) {
	t.Parallel()
	d := begun(t, "", 0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if free, err := d.firstFree(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", free, err)
	}
}
