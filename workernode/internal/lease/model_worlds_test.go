package lease

// The worlds that the model goes through.

// A modelCase is a world that is safe, or a mutant of one.
type modelCase struct {
	name  string
	world modelWorld
	limit int    // a safe world: how many states are gone through unless the model is deep
	of    string // a mutant: its safe world
	found int    // a mutant: after how many states it was found when this was written
}

type modelCases []modelCase

func (l *modelCases) safe(name string, limit int, w modelWorld, changes ...func(*modelWorld)) {
	if w.procs == 0 {
		w.procs = 2
	}
	for _, change := range changes {
		change(&w)
	}
	*l = append(*l, modelCase{name: name, limit: limit, world: w})
}

func (l modelCases) named(name string) modelCase {
	for _, c := range l {
		if c.name == name {
			return c
		}
	}
	panic("the model has no world " + name)
}

var (
	// Clocks show anything, and the database keeps what it acknowledged.
	modelAnyTime = modelWorld{slots: 1, nodes: 1, last: 3, lead: 1, maxV: 3, late: true, closes: true,
		stale: true, noTable: true, keeps: true}
	modelAnyAdds = modelWorld{slots: 1, last: 2, lead: 1, maxV: 3, late: true, adds: true,
		maxNodes: 2, tables: 2, own: true, keeps: true}
	modelAnyNew = modelWorld{last: 2, lead: 1, maxV: 2, late: true, repeat: true, adds: true, newSlots: true,
		maxSlots: 2, maxNodes: 2, tables: 2, own: true, keeps: true}
	modelAnySmall = modelWorld{slots: 1, nodes: 1, last: 3, lead: 1, maxV: 3, maxV2: 2, late: true,
		closes: true, noTable: true, keeps: true}

	// Clocks are right, and the database loses the most commits that are allowed: Lead = G - S - 1, settle = grace =
	// Lead + S + 1.
	modelLossy = modelWorld{slots: 1, nodes: 1, seated: 1, end: 9, lead: 1, gap: 2, settle: 2, grace: 2, losses: 1,
		maxV: 4, maxV2: 2, noTable: true, keeps: true}
	modelLossyAdds = modelWorld{slots: 2, seated: 2, end: 5, lead: 1, gap: 2, settle: 2, grace: 2, losses: 1,
		maxV: 3, maxV2: 2, adds: true, maxNodes: 2, tables: 2, own: true, keeps: true, quiet: 1}
	modelLossyNew = modelWorld{end: 5, lead: 1, gap: 2, settle: 2, grace: 2, losses: 1,
		maxV: 2, adds: true, newSlots: true, maxSlots: 2, maxNodes: 2, tables: 2, own: true, quiet: 1}

	modelClones = modelWorld{slots: 1, nodes: 1, last: 4, lead: 1, maxV: 4, clone: true, noTable: true, noSession: true}

	// A backup is restored, and FLOOR_TICK set.
	modelRestored = modelWorld{slots: 1, last: 3, lead: 1, maxV: 3, adds: true, maxNodes: 2, tables: 2,
		restores: true, losses: 1, quiet: 1, noSession: true}

	modelNoWants   uint8 = 0
	modelWantsLane uint8 = 1 | 2 // a worker id of table 1, and a second one
	// Requests of one process queue up: worker ids of two tables, and another lane.
	modelQueue = modelWorld{procs: 1, slots: 1, wants: &modelNoWants, asks: 1 | 2 | 4, end: 6, lead: 1,
		gap: 2, settle: 2, grace: 2, maxV: 5, adds: true, maxNodes: 3, keeps: true}
)

func modelLate(w *modelWorld) { w.quiet, w.late, w.maxV = 2, true, 3 }

func modelSkewed(w *modelWorld) { w.skew, w.gap, w.settle, w.grace, w.maxV, w.quiet = 1, 3, 3, 3, 3, 1 }

func modelLoseTwice(w *modelWorld) { w.losses, w.maxV, w.maxV2, w.quiet = 2, 3, 2, 1 }

func modelSafeWorlds() (l modelCases) {
	calm := modelLossy
	calm.quiet = 1
	l.safe("free", 60_000, modelAnyTime)
	l.safe("free-adds", 40_000, modelAnyAdds)
	l.safe("free-lane", 200_000, modelAnyTime, func(w *modelWorld) {
		w.adds, w.maxNodes, w.wants, w.keeps, w.stale, w.closes, w.last = true, 2, &modelWantsLane, false, false, false, 2
	})
	l.safe("free-new-slots", 150_000, modelAnyNew)
	l.safe("free-small", 60_000, modelAnySmall)
	l.safe("free-small-longer", 40_000, modelAnySmall, func(w *modelWorld) { w.last = 4 })
	l.safe("lossy", 120_000, modelLossy)
	l.safe("lossy-calm", 60_000, calm)
	l.safe("lossy-adds", 80_000, modelLossyAdds)
	l.safe("lossy-new-slots", 40_000, modelLossyNew)
	l.safe("lossy-lead-2", 40_000, calm, func(w *modelWorld) {
		w.lead, w.gap, w.settle, w.grace, w.end = 2, 3, 3, 3, 11
	})
	l.safe("lossy-late", 40_000, modelLossy, modelLate)
	l.safe("lossy-late-closes", 40_000, modelLossy, modelLate, func(w *modelWorld) { w.closes = true })
	l.safe("lossy-skew", 40_000, modelLossy, modelSkewed)
	l.safe("lossy-closes", 40_000, calm, func(w *modelWorld) { w.closes = true })
	l.safe("lossy-reclaims-again", 40_000, calm, func(w *modelWorld) {
		w.closes, w.end, w.maxV, w.keeps = true, 12, 5, false
	})
	l.safe("lossy-three", 40_000, calm, func(w *modelWorld) { w.procs, w.maxV = 3, 3 })
	l.safe("lossy-twice", 40_000, modelLossy, modelLoseTwice)
	l.safe("lossy-old-primary", 40_000, calm, func(w *modelWorld) { w.stale, w.oldPrimary, w.maxV = true, true, 3 })
	l.safe("lossy-replica-resolves", 40_000, calm, func(w *modelWorld) { w.fromReplica, w.maxV = true, 3 })
	l.safe("lossy-unsure", 160_000, modelLossy, func(w *modelWorld) { w.keeps, w.end = false, 8 })
	l.safe("lossy-adds-few", 130_000, modelLossyAdds, func(w *modelWorld) { w.maxV, w.keeps = 4, false })
	l.safe("lossy-adds-unknown", 40_000, modelLossyAdds, modelUnknownAdds)
	l.safe("lossy-adds-unknown-late", 40_000, modelLossyAdds, modelUnknownAdds, func(w *modelWorld) { w.late = true })
	l.safe("lossy-adds-unknown-stale", 40_000, modelLossyAdds, modelUnknownAdds, func(w *modelWorld) {
		w.stale = true
	})
	l.safe("lossy-adds-unknown-old-primary", 40_000, modelLossyAdds, modelUnknownAdds, func(w *modelWorld) {
		w.stale, w.oldPrimary = true, true
	})
	l.safe("lossy-adds-late", 40_000, modelLossyAdds, func(w *modelWorld) {
		w.keeps, w.late, w.quiet, w.end = false, true, 2, 3
	})
	l.safe("lossy-adds-reclaims", 40_000, modelLossyAdds, func(w *modelWorld) { w.slots, w.seated, w.end = 1, 1, 8 })
	l.safe("clone", 300_000, modelClones)
	l.safe("restore", 400_000, modelRestored)
	l.safe("lively", 20_000, modelLossy, func(w *modelWorld) {
		w.end, w.maxV, w.lively, w.noSession = 4, 3, true, true
	})
	l.safe("pauses-lossy", 60_000, calm, modelPauses)
	l.safe("pauses-lossy-adds", 40_000, modelLossyAdds, modelPauses, func(w *modelWorld) { w.keeps = false })
	l.safe("queue", 100_000, modelQueue)
	l.safe("queue-lossy", 40_000, modelQueue, func(w *modelWorld) {
		w.procs, w.seated, w.losses, w.quiet, w.maxV, w.end = 2, 1, 1, 1, 4, 5
	})
	l.safe("queue-two", 40_000, modelQueue, func(w *modelWorld) { w.procs, w.slots, w.quiet, w.maxV = 2, 2, 1, 3 })
	l.safe("alters", 40_000, modelAnyTime, modelAlters)
	l.safe("alters-adds", 40_000, modelAnyAdds, modelAlters)
	l.safe("alters-new-slots", 60_000, modelAnyNew, modelAlters)
	l.safe("two-slots", 40_000, modelLossy, func(w *modelWorld) { w.slots, w.losses, w.seated = 2, 0, 0 })
	return l
}

func modelUnknownAdds(w *modelWorld) { w.quiet, w.end, w.keeps = 0, 4, false }

func modelAlters(w *modelWorld) { w.alters = true }

func modelPauses(w *modelWorld) { w.pauses = true }

// modelMutants are safe worlds in which a process does something else.
func modelMutants(safe modelCases) (l modelCases) {
	type m = modelMutant
	changed := func(of, name string, found int, change func(*modelWorld)) {
		w := safe.named(of).world
		change(&w)
		l = append(l, modelCase{name: name, of: of, found: found, world: w})
	}
	wrong := func(of, name string, found int, change func(*m)) {
		changed(of, name, found, func(w *modelWorld) { change(&w.mutant) })
	}
	wrong("lossy", "renews-over-a-gap", 41_028, func(x *m) { x.noSendCheck = true })
	wrong("lossy-calm", "uses-a-gap-without-session", 23_664, func(x *m) { x.usesGap, x.noSendCheck = true, true })
	wrong("pauses-lossy", "renews-at-a-later-clock", 49_692, func(x *m) { x.laterClock = true })
	wrong("lossy-calm", "contiguous-at-any-clock", 16_838, func(x *m) { x.anyClock = true })
	wrong("free-lane", "add-grants-when-sent", 2_592, func(x *m) { x.grantsWhenSent = true })
	wrong("lossy", "unknown-renewal-counts", 14_896, func(x *m) { x.grantsInDoubt = true })
	wrong("lossy-unsure", "adopts-what-it-reads", 127_599, func(x *m) { x.adopts = true })
	wrong("lively", "skips-the-read", 22, func(x *m) { x.skipsRead = true })
	wrong("lossy-adds-few", "VERSION-below-is-compared-with", 530_638, func(x *m) { x.ignoresRegress = true })
	wrong("lossy-twice", "check-raises-FENCE", 431_696, func(x *m) { x.checkRaises = true })
	wrong("lossy-adds-unknown", "reads-worker-ids-at-once", 509_044, func(x *m) { x.reselectsAtOnce = true })
	wrong("lossy-adds-unknown-late", "reads-worker-ids-of-any-VERSION", 974_830, func(x *m) {
		x.reselectsAnyVersion = true
	})
	wrong("lossy-adds-unknown-old-primary", "reads-worker-ids-of-an-old-primary", 903_430, func(x *m) {
		x.reselectsAnyVersion = true
	})

	wrong("lossy-calm", "begin-at-any-clock", 31_671, func(x *m) { x.beginAnyClock = true })
	wrong("free-small-longer", "begin-not-above-last-granted", 15_038, func(x *m) { x.beginNotAboveGranted = true })
	wrong("clone", "begin-not-above-FENCE", 220_914, func(x *m) { x.beginNotAboveFence = true })
	wrong("lossy", "begin-hides-leftovers", 91_734, func(x *m) { x.beginHidesLeftovers = true })
	wrong("lossy-calm", "no-end-of-sessions", 1_708, func(x *m) { x.noEnd = true })
	wrong("lossy-calm", "reclaim-at-any-clock", 7_352, func(x *m) { x.reclaimAnyClock = true })
	wrong("free", "reclaim-compares-HOLDER-only", 48_441, func(x *m) { x.reclaimHolderOnly = true })
	wrong("lossy-adds-few", "renew-without-VERSION", 101_735, func(x *m) { x.renewNoVersion = true })
	wrong("lossy-adds-late", "VERSION-from-what-was-read", 588_881, func(x *m) { x.versionOfRead = true })

	wrong("lossy-calm", "keep-alive-grants", 33_385, func(x *m) { x.keepGrants = true })
	wrong("lossy-calm", "keep-alive-counts-as-granted", 39_518, func(x *m) { x.keepCounts = true })
	wrong("free-small", "keep-alive-lowers-FENCE", 36_588, func(x *m) { x.keepLowers = true })

	wrong("lossy-adds", "add-in-a-transaction-of-its-own", 5_719, func(x *m) { x.addAlone = true })
	wrong("lossy-adds", "add-START-before-the-transaction", 19_892, func(x *m) { x.startEarly = true })
	wrong("lossy-adds", "add-ticks-below-START", 54_753, func(x *m) { x.ignoresStart = true })

	changed("lossy-calm", "lead-one-over", 10_220, func(w *modelWorld) { w.lead = 2 })
	changed("lossy-calm", "skew-one-over", 13_058, func(w *modelWorld) { w.skew = 1 })
	changed("lossy-calm", "gap-one-under", 13_065, func(w *modelWorld) { w.gap = 1 })
	changed("lossy", "grace-one-under", 39_177, func(w *modelWorld) { w.grace = 1 })
	changed("lossy-late-closes", "settle-one-under", 503_671, func(w *modelWorld) { w.settle = 1 })
	wrong("restore", "no-FLOOR_TICK", 374_141, func(x *m) { x.noFloor = true })
	wrong("alters", "FENCE-not-read-back", 12_694, func(x *m) { x.notReadBack = true })
	wrong("alters-new-slots", "FENCE-of-a-new-slot-not-read-back", 34_979, func(x *m) { x.notReadBack = true })
	wrong("two-slots", "two-in-flight", 29_083, func(x *m) { x.twoInFlight = true })
	wrong("queue-two", "two-in-flight-queue", 729_473, func(x *m) { x.twoInFlight = true })
	return l
}
