package workernode

import (
	"context"
	"io/fs"
)

var (
	Fit = fit
)

const InsertChunk, LookupChunk, MaxTries = chunk, lookupChunk, maxTries

// Detect is DetectHost on a file system and an environment of one's own.
func Detect(root fs.FS, getenv func(string) string) Host { return detect(root, getenv) }

func (d *DB) Translate(query string) string { return d.translate(query) }

func (d *DB) Duplicate(err error) bool { return d.duplicate(err) }

// ScanDate reads a LAUNCH_DATE.
func ScanDate(v any) (text string, err error) {
	var d date
	err = d.Scan(v)
	return d.Format("2006-01-02 15:04:05 MST"), err
}

// Pass is what the keeper does at each beat.
func (k *Leased) Pass(ctx context.Context) error { return k.pass(ctx, false) }

// Holder is the token of this start.
func (k *Leased) Holder() string { return k.holder }

// OnBoot is the config on a machine with a boot id; none if that is empty.
func (c LeasedConfig) OnBoot(id string) LeasedConfig {
	c.boot = func() (string, error) {
		if id == "" {
			return "", ErrLeaseFile
		}
		return id, nil
	}
	return c
}
