package capacity

import "github.com/uidplugin/uidplugin/generator"

// Carrier returns the layout that String advises.
func (f Forecast) Carrier() (generator.Layout, bool) { return f.carrier() }
