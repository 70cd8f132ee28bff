package supply

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// The names of the built-in generators.
const (
	Cached    = "cached"
	Snowflake = "snowflake"
	Paired    = "paired"
)

// NameOf returns the key in [Specs] for the name of a generator, which may have spaces around it and upper case.
func NameOf(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// A Spec describes how to make a generator: by Make from leases, or by the opener Open.
type Spec struct {
	Lanes int // number of worker ids at first: 1, or 2 for a Paired
	Make  func(generator.Config) (generator.Renewable, error)

	Open     func(context.Context, Opening) (generator.Generator, error)
	Local    bool // Open sends no statement, so it needs no connection
	OfLayout bool // the generator of Open makes ids of the layout without a lease
	Counter  bool // its generator counts rows: the tag of a field may name the counter, and db.Use opens it

	Bind   func(*Supply, *Spec)                                 // sets Open and Within of an opener with a state; may be nil
	Within func(context.Context, gorm.ConnPool) context.Context // returns the context for ids of a statement; may be nil
	Option string                                               // the option that configures Open
	Check  func() error                                         // checks the values of Option

	Replaceable bool // the application may replace Make
}

// An Opening is the input of an opener.
type Opening struct {
	DB      *gorm.DB // not in a transaction
	Table   string
	Column  string   // the counted column; empty for a primary key, and if Spec.Counter is false
	Columns []Column // the columns with ids of the source
}

// opened reports whether an opener makes the generator.
func (s Spec) opened() bool { return s.Make == nil }

// Specs are generators by name.
type Specs map[string]Spec

// Builtin returns the built-in generators.
func Builtin() Specs {
	return Specs{
		Cached: {Lanes: 1, Replaceable: true, Make: func(c generator.Config) (generator.Renewable, error) {
			return generator.NewCached(c.Cached())
		}},
		Snowflake: {Lanes: 1, Replaceable: true, Make: func(c generator.Config) (generator.Renewable, error) {
			return generator.NewSnowflake(c.Snowflake())
		}},
		Paired: {Lanes: 2, Replaceable: true, Make: func(c generator.Config) (generator.Renewable, error) {
			return generator.NewPaired(c.Paired())
		}},
	}
}

// Names lists the names for messages.
func (s Specs) Names() string { return strings.Join(slices.Sorted(maps.Keys(s)), ", ") }

// Generator makes a generator. Pass as many leases as its Spec has lanes.
func (s Specs) Generator(name string, c generator.Config) (g generator.Renewable, err error) {
	defer func() {
		if p := recover(); p != nil {
			g, err = nil, fmt.Errorf("%w: the factory of the generator %q panicked: %v", ErrOption, name, p)
		}
	}()
	g, err = s[name].Make(c)
	if err == nil && isNil(g) {
		return nil, fmt.Errorf("%w: the factory of the generator %q returned nil", ErrOption, name)
	}
	return g, err
}

func isNil(g generator.Generator) bool {
	v := reflect.ValueOf(g)
	return g == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
