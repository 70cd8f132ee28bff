package ringbuffer

// A Candidate is a taker between its look and its claim.
type Candidate = candidate

func (r *Stored) Look(want int) Candidate     { return r.look(want) }
func (r *Stored) Claim(c Candidate) bool      { return r.claim(c) }
func (c Candidate) Ids() (first int64, n int) { return c.first, c.n }

// Cursor returns the position at which the next claim starts, even if that claim will not count.
func (r *Computed) Cursor() uint64 { return r.cursor.Load() }
