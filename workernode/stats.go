package workernode

import (
	"encoding/json"
	"time"
)

// SlotStats is the state of a process's slot, with counters since the process started. Counters never decrease.
// Plugins with the same handle in WithRegistry share a slot, so they return the same values.
type SlotStats struct {
	ID        int64     `json:"id"`             // 0 without a slot
	From      time.Time `json:"from,omitzero"`  // start of the time that this process may stamp, in this session
	Until     time.Time `json:"until,omitzero"` // end of that time, unless the slot is renewed
	WorkerIDs int       `json:"worker_ids"`     // number of worker ids of the slot
	Given     int64     `json:"given"`          // largest worker id given out, as far as this process knows

	Renewals    int64 `json:"renewals"`     // acknowledged renewals that moved Until; adding worker ids renews, too
	Failures    int64 `json:"failures"`     // failed attempts to acquire, renew or use the slot; each is repeated
	Sessions    int64 `json:"sessions"`     // sessions begun
	Reclaimed   int64 `json:"reclaimed"`    // slots reclaimed from former processes
	Allocated   int64 `json:"allocated"`    // slots inserted
	Lost        int64 `json:"lost"`         // slots reclaimed by another process, or released by an operator
	LostCommits int64 `json:"lost_commits"` // slots given up because commits were lost, or the row was deleted

	LastError error     `json:"-"`              // latest error that a retry may not cure; nil after a success
	Since     time.Time `json:"since,omitzero"` // start of the current failures
}

// MarshalJSON writes the last error as text.
func (s SlotStats) MarshalJSON() ([]byte, error) {
	type plain SlotStats
	text := ""
	if s.LastError != nil {
		text = s.LastError.Error()
	}
	return json.Marshal(struct {
		plain
		LastError string `json:"last_error,omitempty"`
	}{plain(s), text})
}
