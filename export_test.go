package uidplugin

import "gorm.io/gorm"

// Fill runs the callback that sets ids, and nothing else.
func (p *Plugin) Fill(db *gorm.DB) { p.core.fill(db) }

// CanonicalTable returns the canonical name of a table on a connection.
func CanonicalTable(d gorm.Dialector, current, catalog string, fold bool, name string) string {
	return naming{dialector: d, current: current, catalog: catalog, fold: fold}.table(name)
}
