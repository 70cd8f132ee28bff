package uidplugin

import (
	"context"
	"errors"

	"github.com/uidplugin/uidplugin/generator"
)

func openSegment(ctx context.Context, c *core, s *source) (generator.Generator, error) {
	return nil, errors.New("not there yet")
}
