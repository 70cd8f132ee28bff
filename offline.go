package uidplugin

import (
	"crypto/sha256"
	"fmt"
	"reflect"

	"gorm.io/gorm"
)

// What a start without the database needs; see WithLeaseFile.

// fingerprint tells a database by its DSN; it is empty if the dialector has none.
func fingerprint(db *gorm.DB) string {
	v := reflect.Indirect(reflect.ValueOf(db.Dialector))
	if v.Kind() != reflect.Struct {
		return ""
	}
	config := v.FieldByName("Config") // which GORM's drivers embed, by pointer
	if config.IsValid() && config.Kind() == reflect.Pointer && !config.IsNil() {
		v = config.Elem()
	}
	dsn := v.FieldByName("DSN")
	if !dsn.IsValid() || dsn.Kind() != reflect.String || dsn.String() == "" {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(dsn.String())))
}

// adopt makes generators of what the lease file has for sources. The others get worker
// ids when the database is back, at their first insert.
func (c *core) adopt(sources []*source) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sources {
		if s.open || s.made.Load() != nil {
			continue
		}
		if lease, ok := c.leased.Adopt(s.table); ok {
			if err := c.make(s, lease); err != nil {
				return err
			}
		}
	}
	return nil
}
