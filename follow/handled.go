package follow

import (
	"context"
	"fmt"

	"github.com/uidplugin/uidplugin"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"gorm.io/gorm"
)

// Handled returns the lowest cursor of all consumers of a model, whether they run or not. Each consumer has handled,
// skipped or left out every row up to this id. The id is 0 if no consumer has begun. Use it to find out which rows may
// be deleted, or which partition may be dropped:
//
//	handled, err := follow.Handled(ctx, db, &Event{})
//	err = db.Where("id <= ?", handled).Delete(&Event{}).Error
//
// Handled does not know consumers whose cursors are in other databases; see [Into]. After the table was renamed, it
// knows none of the earlier consumers until "uid tables rename" has renamed their cursors.
func Handled(ctx context.Context, db *gorm.DB, model any) (uidplugin.ID, error) {
	t, err := tableOf(db, model)
	if err != nil {
		return 0, err
	}
	lowest, _, err := engine.LowestCursor(ctx, t.db, t.Name)
	if err != nil {
		err = fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	return uidplugin.ID(lowest), err
}
