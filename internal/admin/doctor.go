package admin

import (
	"context"
	"slices"
)

// A Finding is a problem of a database.
type Finding struct {
	Code   string `json:"code"`             // stable
	Text   string `json:"text"`             // the problem and its consequence
	Fix    string `json:"fix,omitempty"`    // statement that fixes it
	Advice string `json:"advice,omitempty"` // the remedy, or a precaution before the statement
}

// Codes of findings. docs/command.md explains them.
const (
	CodeClock             = "clock"
	CodeReadOnly          = "read-only"
	CodeNoSlotLive        = "no-slot-live"
	CodeInnoDBFlush       = "innodb-flush"
	CodeSyncBinlog        = "sync-binlog"
	CodeFsync             = "fsync"
	CodeSynchronousCommit = "synchronous-commit"
	CodeAsyncReplicas     = "async-replicas"
	CodeSplitBrain        = "galera-split-brain"
	CodeKeyNumbered       = "key-numbered"
	CodeKeyNarrow         = "key-narrow"
	CodeKeyAhead          = "key-ahead"
	CodeTableRenamed      = "table-renamed"
	CodeLayoutEnd         = "layout-end"
	CodeWorkerIDs         = "worker-ids"
	CodeRegionShared      = "region-shared"
	CodeSlotUnheld        = "slot-unheld"
	CodeSessionDeleted    = "session-deleted"
	CodeNodeMissing       = "node-missing"
	CodeNodeForeign       = "node-foreign"
	CodeNodeOutside       = "node-outside"
	CodeNodeByHand        = "node-by-hand"
	CodeNodeLayout        = "node-layout"
	CodeNodeSlot          = "node-slot"
	CodeFollowTrigger     = "follow-trigger"   // wing: follow
	CodeFollowBroken      = "follow-broken"    // wing: follow
	CodeFollowStopped     = "follow-stopped"   // wing: follow
	CodeFollowAhead       = "follow-ahead"     // wing: follow
	CodeFollowRefused     = "follow-refused"   // wing: follow
	CodeConsumerStuck     = "consumer-stuck"   // wing: follow
	CodeConsumerStopped   = "consumer-stopped" // wing: follow
	CodeConsumerPaused    = "consumer-paused"  // wing: follow
)

// Codes lists the codes of findings.
var Codes = []string{
	CodeClock, CodeReadOnly, CodeNoSlotLive, CodeInnoDBFlush, CodeSyncBinlog, CodeFsync, CodeSynchronousCommit,
	CodeAsyncReplicas, CodeSplitBrain, CodeKeyNumbered, CodeKeyNarrow, CodeKeyAhead, CodeTableRenamed, CodeLayoutEnd,
	CodeWorkerIDs, CodeRegionShared, CodeSlotUnheld, CodeSessionDeleted, CodeNodeMissing, CodeNodeForeign, CodeNodeOutside,
	CodeNodeByHand, CodeNodeLayout, CodeNodeSlot,
	CodeFollowTrigger, CodeFollowBroken, CodeFollowStopped, CodeFollowAhead, CodeFollowRefused, // wing: follow
	CodeConsumerStuck, CodeConsumerStopped, CodeConsumerPaused, // wing: follow
}

// An Undone is a check that could not run.
type Undone struct {
	Check string
	Err   error
}

// A Report is the result of [DB.Examine].
type Report struct {
	Findings []Finding
	Undone   []Undone
	Checks   int
}

// Examine looks for what is wrong with the database. It leaves out findings with the codes in ignore.
func (d *DB) Examine(ctx context.Context, ignore ...string) (r Report) {
	for _, check := range []struct {
		name string
		look func(ctx context.Context) ([]Finding, error) // may return findings and an error
	}{
		{"clock", d.checkClock}, {"writes", d.checkWrites}, {"durability", d.checkDurability},
		{"replication", d.checkReplication}, {"keys", d.checkKeys}, {"layout", d.checkLayout}, {"regions", d.checkRegions},
		{"slots", d.checkSlots}, {"sessions", d.checkSessions}, {"worker nodes", d.checkNodes},
		{"followed tables", d.checkFollowed}, // wing: follow
		{"consumers", d.checkConsumers},      // wing: follow
	} {
		r.Checks++
		found, err := check.look(ctx)
		for _, f := range found {
			if !slices.Contains(ignore, f.Code) {
				r.Findings = append(r.Findings, f)
			}
		}
		if err != nil {
			r.Undone = append(r.Undone, Undone{check.name, err})
		}
	}
	return r
}
