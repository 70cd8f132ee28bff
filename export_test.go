package uidplugin

import "gorm.io/gorm"

// Fill runs the callback that sets ids, and nothing else.
func (p *Plugin) Fill(db *gorm.DB) { p.shared.callbacks().fill(db) }

// WithoutPublicKeys calls f in a process whose keys are not set.
func WithoutPublicKeys(f func()) {
	keys := publicKeys.Swap(nil)
	defer publicKeys.Store(keys)
	f()
}

// ColumnsIn returns how many columns a CREATE TABLE of GORM has.
var ColumnsIn = columnsIn
