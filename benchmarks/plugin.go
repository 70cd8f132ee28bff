package main

import (
	"context"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// use registers a plugin that logs nothing.
func use(db *gorm.DB, options ...uidplugin.Option) (*uidplugin.Plugin, error) {
	p := uidplugin.New(append(options, uidplugin.WithLogger(nil))...)
	return p, db.Use(p)
}

// closePlugin closes a plugin, within a time.
func closePlugin(p *uidplugin.Plugin) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Close(ctx)
}
