package generator

import "time"

// A Config is the input of a function that makes a generator for uidplugin.WithGenerator.
type Config struct {
	Table  string // table of the ids; "*" for all tables
	Layout Layout

	// Leases limit the ticks that the generator may stamp; each lane has one. If OnLow is not nil, later leases arrive
	// by Renew.
	Leases []Lease
	OnLow  func()

	// MaxBorrow is how far ahead of the clock ids may be stamped; 0 means an hour. With
	// uidplugin.WithWorkerID, uidplugin.WithLead sets it.
	MaxBorrow time.Duration

	Clock *Clock           // shared by the generators of the process
	Now   func() time.Time // the time source of Clock
}

// Cached returns the default configuration of [Cached].
func (c Config) Cached() CachedConfig {
	return CachedConfig{Layout: c.Layout, Lease: c.Leases[0], MaxBorrow: c.MaxBorrow, Clock: c.Clock, OnLow: c.OnLow}
}

// Snowflake returns the default configuration of [Snowflake].
func (c Config) Snowflake() SnowflakeConfig {
	return SnowflakeConfig{Layout: c.Layout, Lease: c.Leases[0], Now: c.Now, OnLow: c.OnLow}
}

// Paired returns the default configuration of [Paired]. Use it only in WithGenerator("paired", ...), because generators
// with other names start with one lease.
func (c Config) Paired() PairedConfig {
	return PairedConfig{Layout: c.Layout, Main: c.Leases[0], Backup: c.Leases[1], MaxBorrow: c.MaxBorrow, Clock: c.Clock, OnLow: c.OnLow}
}
