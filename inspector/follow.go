// wing: follow

package inspector

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/admin"
)

// followed returns the followed tables for the first page of tables, and nothing for the others.
func (h *handler) followed(ctx context.Context, p tablesPage) ([]admin.Followed, error) {
	if p.After != 0 {
		return nil, nil
	}
	var names []string
	for _, t := range p.Process {
		names = append(names, t.Table)
	}
	return admin.FollowedOn(ctx, h.db, h.layout, h.limit, names)
}
