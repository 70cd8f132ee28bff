// wing: follow

package inspector

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/admin"
)

// followed returns the followed tables and their consumers for the first page of tables, and nothing for other pages.
func (h *handler) followed(ctx context.Context, p tablesPage) (tables []admin.Followed, consumers []admin.Consumer, err error) {
	if p.After != 0 {
		return nil, nil, nil
	}
	var names []string
	for _, t := range p.Process {
		names = append(names, t.Table)
	}
	if tables, err = admin.FollowedOn(ctx, h.db, h.layout, h.limit, names); err != nil {
		return nil, nil, err
	}
	consumers, err = admin.ConsumersOn(ctx, h.db, h.layout, h.limit, names)
	return tables, consumers, err
}
