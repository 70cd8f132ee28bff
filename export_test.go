package uidplugin

import "gorm.io/gorm"

// Fill runs the callback that sets ids, and nothing else.
func (p *Plugin) Fill(db *gorm.DB) { p.shared.callbacks().fill(db) }
