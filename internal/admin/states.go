package admin

// A State describes a value of [workernode.Slot.State].
type State struct{ Name, Meaning string }

// States lists all states, in the order in which lists and help texts show them.
var States = []State{
	{"live", "A process holds the slot and may make ids up to its fence."},
	{"idle", "A process holds the slot, but has made no ids for minutes."},
	{"overdue", "Its process did not renew it in time: it has ended, hangs, lost the database, or its clock is behind."},
	{"expired", "It is overdue by more than a minute, so the next process may reclaim it."},
	{"free", "Its process released it, so the next process may reclaim it."},
	{"retired", "It was made with WithDisposable, for one process only, and is not used again."},
	{"remote", "It belongs to another region. Its row is replicated, and may be old, so look in the database of that region."},
}

// StateNames lists the names of [States].
func StateNames() (names []string) {
	for _, s := range States {
		names = append(names, s.Name)
	}
	return names
}
