package catalog

import (
	"fmt"
	"maps"
	"reflect"
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

// A Catalog holds the known models and their plans. It is safe for concurrent use.
type Catalog struct {
	*config.Config
	db     *gorm.DB
	sql    *sqldb.DB // nil with a fixed worker id
	reader *sqldb.DB // reads columns; nil if the handle does not have connections
	supply *supply.Supply
	public Public

	plans atomic.Pointer[map[*schema.Schema]*Plan] // the map is immutable; replaced under mu

	mu     sync.Mutex
	listed map[string]*Plan   // by table: models that Find loads
	tables map[string]*table  // by the names in models
	warned map[[3]string]bool // logged warnings, by kind, table and column

	// OnInsertError is called with the error of each create, update and Exec. It returns the error for the caller, and
	// reports whether the database has refused the id of a row; then the keys that the create has set are cleared. nil
	// keeps all errors. Set it before RegisterCallbacks.
	OnInsertError func(stmt *gorm.Statement, err error) (_ error, refused bool)

	// Until started is set, only db.Use uses these.
	started bool             // db.Use has succeeded
	later   []*supply.Source // sources to open afterwards
	undo    []func()         // restores GORM's schemas if db.Use fails
}

// Public gives the catalog access to keys whose texts are public ids.
type Public struct {
	Prefix  func(key reflect.Type) (prefix string, ok bool) // ok is false for other key types
	IsText  func(text string) bool                          // reports whether text belongs to a key of any type
	KeysSet func() bool                                     // reports whether texts can be written and read
}

// Later returns the sources to open after db.Use has succeeded.
func (c *Catalog) Later() []*supply.Source { return c.later }

// Start notes that db.Use has succeeded.
func (c *Catalog) Start() { c.started = true }

// Undo restores GORM's schemas after db.Use has failed.
func (c *Catalog) Undo() {
	for _, undo := range c.undo {
		undo()
	}
}

// New returns an empty catalog. statements is nil with a fixed worker id.
func New(cfg *config.Config, db *gorm.DB, statements *sqldb.DB, ids *supply.Supply, public Public) *Catalog {
	cat := &Catalog{Config: cfg, db: db, sql: statements, reader: statements, supply: ids, public: public,
		listed: map[string]*Plan{}, tables: map[string]*table{}, warned: map[[3]string]bool{}}
	if statements == nil {
		cat.reader, _ = sqldb.Open(db, cfg.Timeout)
	}
	cat.plans.Store(&map[*schema.Schema]*Plan{})
	return cat
}

// A Plan describes how the ids of one model are filled. Each of GORM's schemas has one. After creation only its atomic
// fields change.
type Plan struct {
	*model.Model
	fields []*Field
	table  *table
	Err    error // the model is unusable; creates return this error

	relations []*schema.Relationship // associations whose rows a create saves too

	// sources belong to fields, and to the models that GORM can create along with this one, directly or not. ready is
	// set permanently when all of them have a generator.
	sources []*supply.Source
	ready   atomic.Bool

	joins []join
}

// A join is a join table that a create can reach. SetupJoinTable replaces it in the relationship.
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

// addPlan creates a plan. It copies the map of plans, because every create reads the map and so does not need a lock.
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
	switch key := s.PrioritizedPrimaryField; {
	case !p.AutoIncrement, p.Err == nil && p.key().Source.Foreign:
	case !model.WantsAutoIncrement(key):
		if c.once("model", s.Table, "") {
			c.warnAutoIncrement(s)
		}
	case c.db.Dialector.Name() == "mysql" && p.Err == nil:
		c.supply.LeaveGaps(p.key().Source) // because the tag asks for numbering
	}
	return p
}

func (c *Catalog) newPlan(s *schema.Schema) *Plan {
	p := &Plan{table: c.noteColumns(s), relations: model.Relations(s)}
	if p.Model, p.Err = model.New(c.db, s, c.target()); p.Err != nil {
		return p
	}
	for _, f := range p.Fields {
		source, err := c.source(f.Field)
		if err != nil {
			p.Err = err
			return p
		}
		p.fields = append(p.fields, &Field{f, source})
	}
	seen := map[*supply.Source]bool{}
	model.Walk(c.db, s, func(s *schema.Schema) {
		c.noteColumns(s)
		for _, r := range s.Relationships.Many2Many {
			p.joins = append(p.joins, join{r, r.JoinTable})
		}
		for _, sf := range model.UIDFields(s) {
			// Ignore errors of related models here, because their creates return them.
			if src, err := c.source(sf); err == nil && !seen[src] {
				seen[src] = true
				p.sources = append(p.sources, src)
			}
		}
	})
	p.ready.Store(len(p.sources) == 0)
	return p
}

// source returns the source of a uid field. The error wraps [model.ErrField].
func (c *Catalog) source(f *schema.Field) (*supply.Source, error) {
	name, _ := model.Tagged(f)
	t := strings.ToLower(string(f.DataType))
	text := f.GORMDataType == schema.String || strings.Contains(t, "char") || strings.Contains(t, "text")
	column := supply.Column{Name: f.DBName, Primary: f.PrimaryKey, Text: text, Tag: model.SegmentTag(f)}
	src, err := c.supply.Source(f.Schema.Table, column, name)
	if err != nil {
		return nil, fmt.Errorf("%w %s.%s: %w", model.ErrField, f.Schema.Name, f.Name, err)
	}
	return src, nil
}

// key returns the primary key if it is a uid field, otherwise the first uid field, or nil without uid fields.
func (p *Plan) key() *Field {
	key := p.Key()
	for _, f := range p.fields {
		if f.Field == key {
			return f
		}
	}
	return nil
}

// KeyOf returns the plan and key for the model of value.
func (c *Catalog) KeyOf(db *gorm.DB, value any) (*Plan, *Field, error) {
	s, err := model.Parse(db, value)
	if err != nil {
		return nil, nil, err
	}
	p := c.Plan(s)
	f := p.key()
	switch {
	case p.Err != nil:
		return nil, nil, p.Err
	case f == nil:
		return nil, nil, fmt.Errorf("%w: %T", model.ErrNoField, value)
	}
	return p, f, nil
}

// target returns the range that uid fields must hold.
func (c *Catalog) target() model.Target {
	return model.Target{Largest: 1<<(c.Layout.TimeBits+c.Layout.WorkerBits+c.Layout.SequenceBits) - 1, Dialect: c.db.Dialector.Name()}
}
