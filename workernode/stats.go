package workernode

import "time"

// SlotStats is the state of a process's slot, with counters since the start.
type SlotStats struct {
	Slot      int64 // 0 if the process holds none
	From      int64 // first tick of the current session
	Until     int64 // last granted tick
	WorkerIDs int   // number of the slot's worker ids
	Given     int64 // the registry's largest worker id known to be given out, or 0

	Renewals  int64 // acknowledged statements that moved the fence
	Failures  int64 // failed attempts to renew the slot, or of other statements about it; each is retried
	Sessions  int64 // sessions that were begun
	Reclaimed int64 // slots of former processes that were reclaimed
	Allocated int64 // slots that were inserted
	Lost      int64 // slots that another process reclaimed, or an operator released
	// LostCommits counts how often the slot's row was missing, or older than acknowledged.
	LostCommits int64

	LastError error     // error of the last statement; nil if it succeeded
	Since     time.Time // when the statements began to fail
}
