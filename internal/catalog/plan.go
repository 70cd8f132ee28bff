package catalog

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A Catalog holds the known models and their plans. It is safe for concurrent use.
type Catalog struct {
	*config.Config
	db     *gorm.DB
	supply *supply.Supply

	OnPlan func(p *Plan) // called for each new plan; may be nil. Set it before the first plan

	plans atomic.Pointer[map[*schema.Schema]*Plan] // the map is immutable; replaced under mu

	mu     sync.Mutex
	listed map[string]*Plan   // by table: models that Find loads
	warned map[[3]string]bool // logged warnings, by kind, table and column

	// mu does not guard these two fields, because db.Use sets them before goroutines share the handle.
	started bool             // db.Use has succeeded
	later   []*supply.Source // sources to open after db.Use has succeeded
}

// Later returns the sources to open after db.Use has succeeded.
func (c *Catalog) Later() []*supply.Source { return c.later }

// Start notes that db.Use has succeeded.
func (c *Catalog) Start() { c.started = true }

// New returns an empty catalog.
func New(cfg *config.Config, db *gorm.DB, ids *supply.Supply) *Catalog {
	cat := &Catalog{Config: cfg, db: db, supply: ids,
		listed: map[string]*Plan{}, warned: map[[3]string]bool{}}
	cat.plans.Store(&map[*schema.Schema]*Plan{})
	return cat
}

// A Plan describes how the ids of one model are filled. Only its atomic fields change later.
type Plan struct {
	*model.Model
	Fields []*Field // the uid fields with the sources of their ids
	Err    error    // the model is unusable; creates return this error

	Relations []*schema.Relationship // associations whose rows a create saves too

	// Sources has the sources of this model, and of the models that GORM can create along with it, directly or not.
	// Ready is set for ever when each of these sources has a generator.
	Sources []*supply.Source
	Ready   atomic.Bool

	joins []join
}

// A join is a join table that a create can reach. GORM's SetupJoinTable can replace this table.
type join struct {
	*schema.Relationship
	table *schema.Schema
}

// isOutdated reports whether SetupJoinTable has replaced a join table since the plan was made.
func (p *Plan) isOutdated() bool {
	for _, j := range p.joins {
		if j.JoinTable != j.table {
			return true
		}
	}
	return false
}

// A Field is a uid field of a model with the source of its ids.
type Field struct {
	*model.Field
	Source *supply.Source
}

// Plan returns the plan of a schema, and creates it if needed.
func (c *Catalog) Plan(s *schema.Schema) *Plan {
	if p := (*c.plans.Load())[s]; p != nil && !p.isOutdated() {
		return p
	}
	return c.addPlan(s)
}

// Planned reports whether a schema has a plan.
func (c *Catalog) Planned(s *schema.Schema) bool { return (*c.plans.Load())[s] != nil }

func (c *Catalog) addPlan(s *schema.Schema) *Plan {
	p := c.newPlan(s) // without the lock, because it calls the application's code
	c.mu.Lock()
	plans := *c.plans.Load()
	before := plans[s]
	if before != nil && !before.isOutdated() {
		c.mu.Unlock()
		return before // another goroutine was faster
	}
	if before != nil && c.listed[s.Table] == before {
		c.listed[s.Table] = p
	}
	plans = maps.Clone(plans)
	plans[s] = p
	c.plans.Store(&plans)
	c.mu.Unlock()
	if c.OnPlan != nil {
		c.OnPlan(p)
	}
	return p
}

func (c *Catalog) newPlan(s *schema.Schema) *Plan {
	p := &Plan{Relations: model.Relations(s)}
	if p.Model, p.Err = model.New(c.db, s, c.Target()); p.Err != nil {
		return p
	}
	for _, f := range p.Model.Fields {
		source, err := c.SourceOf(f.Field)
		if err != nil {
			p.Err = err
			return p
		}
		p.Fields = append(p.Fields, &Field{f, source})
	}
	seen := map[*supply.Source]bool{}
	model.Walk(c.db, s, func(s *schema.Schema) {
		for _, r := range s.Relationships.Many2Many {
			p.joins = append(p.joins, join{r, r.JoinTable})
		}
		for _, sf := range model.UIDFields(s) {
			// Ignore errors of related models here, because their creates return them.
			if src, err := c.SourceOf(sf); err == nil && !seen[src] {
				seen[src] = true
				p.Sources = append(p.Sources, src)
			}
		}
	})
	p.Ready.Store(len(p.Sources) == 0)
	return p
}

// SourceOf returns the source of a uid field. The error wraps [model.ErrField].
func (c *Catalog) SourceOf(f *schema.Field) (*supply.Source, error) {
	name, _ := model.Tagged(f)
	t := strings.ToLower(string(f.DataType))
	text := f.GORMDataType == schema.String || strings.Contains(t, "char") || strings.Contains(t, "text")
	column := supply.Column{Name: f.DBName, Primary: f.PrimaryKey, Text: text, Tag: model.CounterTag(f)}
	src, err := c.supply.Source(f.Schema.Table, column, name)
	if err != nil {
		return nil, fmt.Errorf("%w %s.%s: %w", model.ErrField, f.Schema.Name, f.Name, err)
	}
	return src, nil
}

// KeyField returns the primary key if it is a uid field, otherwise the first uid field, or nil without uid fields.
func (p *Plan) KeyField() *Field {
	key := p.Key()
	for _, f := range p.Fields {
		if f.Field == key {
			return f
		}
	}
	return nil
}

// KeyOf takes a value of a model, and returns the plan and the key field of the model.
func (c *Catalog) KeyOf(db *gorm.DB, value any) (*Plan, *Field, error) {
	s, err := model.Parse(db, value)
	if err != nil {
		return nil, nil, err
	}
	p := c.Plan(s)
	f := p.KeyField()
	switch {
	case p.Err != nil:
		return nil, nil, p.Err
	case f == nil:
		return nil, nil, fmt.Errorf("%w: %T", model.ErrNoField, value)
	}
	return p, f, nil
}

// Target returns the largest id that uid fields must hold, and the dialect of the database.
func (c *Catalog) Target() model.Target {
	return model.Target{Largest: 1<<(c.Layout.TimeBits+c.Layout.WorkerBits+c.Layout.SequenceBits) - 1, Dialect: c.db.Dialector.Name()}
}
