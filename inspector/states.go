package inspector

// A state is what the page says of a state of [uidplugin.Slot.State].
type state struct {
	Name    string
	Class   string // good, late, or empty
	Meaning string
}

// Classes of the style sheet.
const (
	good = "good"
	late = "late"
	bad  = "bad" // of a health only
)

// states are those that there are, in the order in which the page lists them.
var states = []state{
	{"live", good, "A process holds the slot and may stamp ids up to the fence."},
	{"idle", good, "A process holds the slot. It has made no ids for minutes."},
	{"overdue", late, "Its process should have renewed it and has not: it was killed, is paused, or cannot reach the database."},
	{"expired", late, "The same for more than a minute. The next process gets it."},
	{"free", "", "It was released. The next process gets it."},
	{"retired", "", "It was for one process only. Nobody will use it again."},
}

// stateOf returns the state with a name.
func stateOf(name string) state {
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	return state{Name: name}
}
