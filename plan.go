package uidplugin

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A catalog has the models that the plugin knows, and the plan of each. It may be used concurrently.
type catalog struct {
	*config.Config
	db     *gorm.DB
	sql    *sqldb.DB // nil with a fixed worker id
	reader *sqldb.DB // reads columns; nil if the handle has no connections
	supply *supply.Supply

	plans atomic.Pointer[map[*schema.Schema]*plan] // the map is never changed, only replaced, under mu

	mu     sync.Mutex
	listed map[string]*plan   // by table: the models that Find loads
	tables map[string]*table  // by the names that models have for them
	warned map[[3]string]bool // by kind, table and column: the warnings that were logged

	// Until started is set, only Initialize uses these.
	started bool             // db.Use has succeeded
	later   []*supply.Source // to be opened when it has
	undo    []func()         // what to do to GORM's schemas if it fails
}

func newCatalog(cfg *config.Config, db *gorm.DB, statements *sqldb.DB, ids *supply.Supply) *catalog {
	cat := &catalog{Config: cfg, db: db, sql: statements, reader: statements, supply: ids,
		listed: map[string]*plan{}, tables: map[string]*table{}, warned: map[[3]string]bool{}}
	if statements == nil {
		cat.reader, _ = sqldb.Open(db, cfg.Timeout)
	}
	cat.plans.Store(&map[*schema.Schema]*plan{})
	return cat
}

// A plan is what to do for a model. It is created once for each of GORM's schemas. After that only its atomic fields
// change.
type plan struct {
	*model.Model
	fields []*field
	table  *table
	err    error // the model cannot be used; every create returns it

	// sources are those of fields, and of the models that GORM can create along with this one, directly or not. When
	// all have a generator, ready is set permanently, and statements are no longer searched for what they need.
	sources []*supply.Source
	ready   atomic.Bool

	relations []association // that GORM saves; they find the plans of their models later
}

// A field is a uid field of a model, and the source of its ids.
type field struct {
	*model.Field
	source *supply.Source
}

// plan returns the plan of a schema.
func (c *catalog) plan(s *schema.Schema) *plan {
	if p := (*c.plans.Load())[s]; p != nil {
		return p
	}
	return c.addPlan(s)
}

// addPlan makes a plan. It copies the map of plans, because models are few and come early, and every create looks them
// up: reading a map that never changes needs no lock.
func (c *catalog) addPlan(s *schema.Schema) *plan {
	p := c.newPlan(s) // calls code of the application, so no lock is held
	c.mu.Lock()
	plans := *c.plans.Load()
	if other := plans[s]; other != nil {
		c.mu.Unlock()
		return other // another goroutine was faster
	}
	plans = maps.Clone(plans)
	plans[s] = p
	c.plans.Store(&plans)
	c.mu.Unlock()
	switch key := s.PrioritizedPrimaryField; {
	case !p.AutoIncrement:
	case !model.WantsAutoIncrement(key):
		if c.once("model", s.Table, "") {
			c.warnAutoIncrement(s)
		}
	case c.db.Dialector.Name() == "mysql" && p.err == nil:
		c.supply.LeaveGaps(p.key().source) // as its tag says
	}
	return p
}

func (c *catalog) newPlan(s *schema.Schema) *plan {
	p := &plan{relations: associations(s), table: c.noteColumns(s)}
	if p.Model, p.err = model.New(c.db, s, c.target()); p.err != nil {
		return p
	}
	for _, f := range p.Fields {
		source, err := c.source(f.Field)
		if err != nil {
			p.err = err
			return p
		}
		p.fields = append(p.fields, &field{f, source})
	}
	seen := map[*supply.Source]bool{}
	model.Walk(c.db, s, func(s *schema.Schema) {
		c.noteColumns(s)
		for _, sf := range model.UIDFields(s) {
			// Errors of related models arise when one of them is created.
			if src, err := c.source(sf); err == nil && !seen[src] {
				seen[src] = true
				p.sources = append(p.sources, src)
			}
		}
	})
	p.ready.Store(len(p.sources) == 0)
	return p
}

// source returns the source of a uid field. The error wraps [ErrField].
func (c *catalog) source(f *schema.Field) (*supply.Source, error) {
	name, _ := model.Tagged(f)
	t := strings.ToLower(string(f.DataType))
	text := f.GORMDataType == schema.String || strings.Contains(t, "char") || strings.Contains(t, "text")
	column := supply.Column{Name: f.DBName, Primary: f.PrimaryKey, Text: text, Tag: model.SegmentTag(f)}
	src, err := c.supply.Source(f.Schema.Table, column, name)
	if err != nil {
		return nil, fmt.Errorf("%w %s.%s: %w", ErrField, f.Schema.Name, f.Name, err)
	}
	return src, nil
}

// key returns the primary key of the model if that is a uid field, else its first uid field. It returns nil if the
// model has no uid field.
func (p *plan) key() *field {
	key := p.Key()
	for _, f := range p.fields {
		if f.Field == key {
			return f
		}
	}
	return nil
}

// keyOf returns the plan and the key of the model that value is a row of.
func (c *catalog) keyOf(db *gorm.DB, value any) (*plan, *field, error) {
	s, err := model.Parse(db, value)
	if err != nil {
		return nil, nil, err
	}
	p := c.plan(s)
	f := p.key()
	switch {
	case p.err != nil:
		return nil, nil, p.err
	case f == nil:
		return nil, nil, fmt.Errorf("%w: %T", ErrNoField, value)
	}
	return p, f, nil
}

// target returns what uid fields have to hold.
func (c *catalog) target() model.Target {
	return model.Target{Largest: 1<<(c.Layout.TimeBits+c.Layout.WorkerBits+c.Layout.SequenceBits) - 1, Dialect: c.db.Dialector.Name()}
}
