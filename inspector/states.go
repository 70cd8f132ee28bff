package inspector

import "github.com/uidplugin/uidplugin/internal/admin"

// A state is a value of [workernode.Slot.State] with its CSS class.
type state struct {
	admin.State
	Class string // good, late, or empty
}

// CSS classes.
const (
	good = "good"
	late = "late"
	bad  = "bad" // only for the type health
)

var classes = map[string]string{"live": good, "idle": good, "overdue": late, "expired": late}

// states returns all states in the order of the page.
func states() (list []state) {
	for _, s := range admin.States {
		list = append(list, state{s, classes[s.Name]})
	}
	return list
}

func stateOf(name string) state {
	for _, s := range states() {
		if s.Name == name {
			return s
		}
	}
	return state{State: admin.State{Name: name}}
}
