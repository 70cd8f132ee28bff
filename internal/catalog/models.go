package catalog

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jinzhu/inflection"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Add lists models, prepares their schemas, and gets their worker ids.
func (c *Catalog) Add(ctx context.Context, db *gorm.DB, models []any) error {
	var errs []error
	var sources []*supply.Source
	var plain []string
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p := c.Plan(s)
		switch {
		case len(p.Lost) > 0:
			errs = model.Distinct(s, p.Lost, errs)
			continue
		case p.Err != nil:
			errs = append(errs, p.Err)
			continue
		case len(p.Fields) > 0:
			if err := c.list(p); err != nil {
				errs = append(errs, err)
				continue
			}
		case c.once("plain", s.Table, ""):
			plain = append(plain, cmp.Or(s.Name, s.Table))
		}
		if f := model.UnusedID(s); f != nil && c.once("unused", s.Table, f.DBName) {
			c.Log.Warn("uidplugin: this field is not the key, because another field has the tag primaryKey, so it gets no id and is 0 in every row; tag it uid, or uid:- if the application sets it",
				"field", s.Name+"."+f.Name, "key", strings.Join(s.PrimaryFieldDBNames, ", "))
		}
		sources = append(sources, p.Sources...)
	}
	if len(plain) > 0 {
		c.Log.Info("uidplugin: these models have no uid field, so the plugin does not set their keys", "models", strings.Join(plain, ", "))
	}
	if err := errors.Join(errs...); err != nil || len(sources) == 0 || c.LookupOnly {
		return err
	}
	if !c.started {
		// The sources whose Opened is true are opened later, by supply.OpenCounters and supply.Start.
		sources = slices.DeleteFunc(sources, func(s *supply.Source) bool {
			if s.Opened {
				c.later = append(c.later, s)
			}
			return s.Opened
		})
	}
	if len(sources) == 0 {
		return nil
	}
	return c.supply.Ensure(ctx, db.Statement.ConnPool, sources)
}

// list lists a model, so that Find loads its rows.
func (c *Catalog) list(p *Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkKind(p); err != nil {
		return err
	}
	c.listed[p.Schema.Table] = p
	if _, kind := p.kindOf(); kind.Missing != "" && !c.warned[warnedTexts] {
		c.warned[warnedTexts] = true
		c.Log.Warn("uidplugin: keys of this model and of similar ones cannot be written or read as texts yet; do what the attribute missing tells", "model", p.Schema.Name, "missing", kind.Missing)
	}
	return nil
}

var warnedTexts = [3]string{"texts"}

// ListedFor returns the plan of the model listed for a table, or nil.
func (c *Catalog) ListedFor(table string) *Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[table]
}

// NameFor returns the name of the model of a table. If this process has used no such model, NameFor makes the name
// from the table's.
func (c *Catalog) NameFor(table string) string {
	for s := range *c.plans.Load() {
		if s.Table == table && s.Name != "" {
			return s.Name
		}
	}
	var name strings.Builder
	for word := range strings.SplitSeq(inflection.Singular(table), "_") {
		if first, size := utf8.DecodeRuneInString(word); size > 0 {
			name.WriteString(string(unicode.ToUpper(first)) + word[size:])
		}
	}
	return name.String()
}

// Listed returns the plans of listed models, ordered by table.
func (c *Catalog) Listed() (all []*Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, table := range slices.Sorted(maps.Keys(c.listed)) {
		all = append(all, c.listed[table])
	}
	return all
}

// once reports whether this is the first warning of its kind about a column.
func (c *Catalog) once(kind, table, column string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [3]string{kind, table, column}
	before := c.warned[key]
	c.warned[key] = true
	return !before
}

// Visit calls f for the schema and the table of each model and of its associations. If the handle names another
// table, it calls f for that table, too.
func (c *Catalog) Visit(db *gorm.DB, models []any, f func(table string, s *schema.Schema)) {
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			continue
		}
		model.Walk(db, s, func(s *schema.Schema) { f(s.Table, s) })
		if elsewhere := model.ParseElsewhere(db, m); elsewhere != nil {
			f(elsewhere.Table, s)
		}
	}
}
