package generator_test

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin/generator"
)

// A text that only looks like a layout would give wrong times.
func TestParseLayout_AcceptsWhatStringWrites(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		generator.DefaultLayout().String(), generator.SnowflakeLayout().String(), generator.JSSafeLayout().String(),
		"1-1-1-61/1h0m0s@0", "61-1-1-1/1ms@-0.5", "1-41-18-4/1.000001ms@-62135596799.000000001", "2-19-39-4/2562047h47m16.854775807s@12.34",
	} {
		if l, err := generator.ParseLayout(text); err != nil || l.String() != text {
			t.Errorf("%s is read as %s, %v", text, l, err)
		}
	}
	for _, text := range []string{
		"", "1-41-18-4", "1-41-18-4/1ms", "1-41-18/1ms@0", "1-41-18-4/1@0", "1-41-18-4/1us@0", "1-300-18-4/1ms@0", "1-41-0-4/1ms@0",
		"2-41-18-4/1ms@0", "1-41-18-4/1000ms@0", "1-41-18-4/1ms@0.10", "1-41-18-4/1ms@00", "1-41-18-4/1ms@99999999999999999999",
		"1-41-18-4/1ms@0.1234567891", "1-41-18-4/1ms@+0", " 1-41-18-4/1ms@0", "1-41-18-4/1ms@0'",
	} {
		if l, err := generator.ParseLayout(text); !errors.Is(err, generator.ErrLayout) || l != (generator.Layout{}) {
			t.Errorf("%q is read as %s, %v", text, l, err)
		}
	}
}
