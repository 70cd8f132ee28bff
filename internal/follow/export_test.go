package follow

import "time"

// SetHeldAfter sets how long a round may wait before the log says so.
func (m *Mark) SetHeldAfter(d time.Duration) { m.heldAfter = d }
