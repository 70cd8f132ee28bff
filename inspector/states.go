package inspector

// A state describes a state of [uidplugin.Slot.State].
type state struct {
	Name    string
	Class   string // good, late, or empty
	Meaning string
}

// CSS classes.
const (
	good = "good"
	late = "late"
	bad  = "bad" // only for a health
)

// states lists all states in the order of the page.
var states = []state{
	{"live", good, "A process holds the slot and may stamp ids up to the fence."},
	{"idle", good, "A process holds the slot. It has made no ids for minutes."},
	{"overdue", late, "Its process should have renewed it and has not: it was killed, is paused, cannot reach the database, or its clock is behind."},
	{"expired", late, "The same for more than a minute. The next process gets it."},
	{"free", "", "It was released. The next process gets it."},
	{"retired", "", "It was for one process only. Nobody will use it again."},
}

func stateOf(name string) state {
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	return state{Name: name}
}
