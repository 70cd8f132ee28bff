package settings_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The models of the main job.
type (
	Buyer struct {
		uidplugin.Model
		Name  string `gorm:"size:40;uniqueIndex"`
		Parts []Part
	}
	Part struct {
		ID      int64 `gorm:"primaryKey;uid"`
		BuyerID uidplugin.ID
		Title   string `gorm:"size:40"`
	}
	Bill struct {
		ID    int64 `gorm:"primaryKey;uid:segment"`
		Total int
	}
	Post struct {
		ID   uidplugin.ID `gorm:"primaryKey;uid"`
		Text string       `gorm:"size:40"`
	}
)

var all = []any{&Buyer{}, &Part{}, &Bill{}, &Post{}}

// mainJob does what an application does: two processes create, find and follow rows, and one of them restarts. params
// are parameters of the connections.
func mainJob(ctx context.Context, d *testkit.Database, params ...string) error {
	one, err := begin(d, params...)
	if err != nil {
		return fmt.Errorf("the first process: %w", err)
	}
	defer one.end()
	if err := one.plugin.AutoMigrate(all...); err != nil {
		return fmt.Errorf("AutoMigrate: %w", err)
	}
	if err := follow.Enable(ctx, one.db, &Post{}, follow.WithSlack(200*time.Millisecond)); err != nil {
		return fmt.Errorf("follow.Enable: %w", err)
	}
	two, err := begin(d, params...)
	if err != nil {
		return fmt.Errorf("the second process: %w", err)
	}
	defer two.end()
	if err := migrations.CreateFunctions(ctx, two.db); err != nil {
		return err
	}
	processes := []*process{one, two}
	for i, p := range processes {
		if err := p.work(ctx, fmt.Sprint(i), processes); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	if err := one.end(); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	again, err := begin(d, params...)
	if err != nil {
		return fmt.Errorf("the restarted process: %w", err)
	}
	defer again.end()
	if err := again.work(ctx, "again", []*process{again, two}); err != nil {
		return fmt.Errorf("the restarted process: %w", err)
	}
	return errors.Join(again.end(), two.end())
}

// A process is a handle with the plugin.
type process struct {
	db     *gorm.DB
	plugin *uidplugin.Plugin
}

func begin(d *testkit.Database, params ...string) (*process, error) { return beginWith(d, params, all) }

func beginWith(d *testkit.Database, params []string, models []any, options ...uidplugin.Option) (*process, error) {
	db, err := d.Connect(nil, params...)
	if err != nil {
		return nil, err
	}
	p := uidplugin.New(append(options, harness.Quiet, uidplugin.WithModels(models...))...)
	if err := db.Use(p); err != nil {
		return nil, errors.Join(err, testkit.Close(db))
	}
	return &process{db, p}, nil
}

func (p *process) end() error {
	return errors.Join(p.plugin.Close(context.Background()), testkit.Close(p.db))
}

// work creates rows of each model. All processes find them.
func (p *process) work(ctx context.Context, name string, processes []*process) error {
	single := Buyer{Name: name + " a", Parts: []Part{{Title: "pen"}, {Title: "ink"}}}
	batch := []Buyer{{Name: name + " b"}, {Name: name + " c"}}
	bills := []Bill{{Total: 1}, {Total: 2}}
	for _, rows := range []any{&single, &batch, &bills} {
		if err := p.db.Create(rows).Error; err != nil {
			return fmt.Errorf("create %T: %w", rows, err)
		}
	}
	upsert := []Buyer{{Name: name + " b"}, {Name: name + " d"}}
	err := p.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoNothing: true}).Create(&upsert).Error
	if err != nil || upsert[0].ID != batch[0].ID || upsert[1].ID == 0 {
		return fmt.Errorf("upsert: got the ids %d and %d, want %d and another one: %w", upsert[0].ID, upsert[1].ID, batch[0].ID, err)
	}
	if bills[1].ID != bills[0].ID+1 {
		return fmt.Errorf("bills have the ids %d and %d", bills[0].ID, bills[1].ID)
	}
	places := map[uidplugin.ID]string{
		single.ID: "buyers", uidplugin.ID(single.Parts[1].ID): "parts", batch[1].ID: "buyers", upsert[1].ID: "buyers",
	}
	for _, other := range processes {
		for id, table := range places {
			if where, err := other.plugin.Locate(ctx, id); err != nil || where.Table != table {
				return fmt.Errorf("Locate(%d) = %+v, want table %s: %w", id, where, table, err)
			}
		}
		row, err := other.plugin.Find(ctx, single.ID)
		if found, ok := row.(*Buyer); err != nil || !ok || found.Name != single.Name {
			return fmt.Errorf("Find(%d) = %+v: %w", single.ID, row, err)
		}
		if err := p.follow(ctx, other); err != nil {
			return err
		}
	}
	if table := ""; p.db.Name() != "sqlite" {
		if err := p.db.Raw("SELECT uid_table(?)", single.ID).Scan(&table).Error; err != nil || table != "buyers" {
			return fmt.Errorf("uid_table(%d) = %q: %w", single.ID, table, err)
		}
	}
	return p.plugin.Health()
}

// follow creates rows that another process follows.
func (p *process) follow(ctx context.Context, other *process) error {
	var ids []uidplugin.ID
	for range 3 {
		post := Post{Text: "hello"}
		if err := create(p.db, &post); err != nil {
			return fmt.Errorf("create a followed row: %w", err)
		}
		ids = append(ids, post.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n := 0
	for post, err := range follow.Rows[Post](ctx, other.db, ids[0]-1) {
		if err != nil {
			return fmt.Errorf("follow: %w", err)
		}
		if post.ID != ids[n] {
			return fmt.Errorf("row %d that is followed has the id %d instead of %d", n, post.ID, ids[n])
		}
		if n++; n == len(ids) {
			break
		}
	}
	return nil
}

// create creates a row of a followed table, again if the machine was so busy that it came too late.
func create(db *gorm.DB, row any) error {
	err := db.Create(row).Error
	for range 20 {
		if !errors.Is(err, follow.ErrTooLate) {
			break
		}
		err = db.Create(row).Error
	}
	return err
}
