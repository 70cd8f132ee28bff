package uidplugin

import "gorm.io/gorm"

// Fill runs the callbacks that set ids and end their notes, and nothing else.
func (p *Plugin) Fill(db *gorm.DB) {
	p.shared.fill(db)
	p.shared.settle(db)
}

// WithoutPublicKeys calls f in a process whose keys are not set.
func WithoutPublicKeys(f func()) {
	keys := publicKeys.Swap(nil)
	defer publicKeys.Store(keys)
	f()
}
