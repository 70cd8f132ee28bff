package follow

import (
	"errors"
	"testing"
)

// A user may choose a name that a unique index refuses with the message of the trigger.
func TestTooLate_IgnoresTheTextInAnotherError(t *testing.T) {
	t.Parallel()
	const message = "Error 1644 (45U01): uid_follow: too late: the id 5 is below 7 at 1795492993486; create it again with a new id"
	for text, want := range map[string]bool{
		message:                      true,
		"create: " + message + "; x": true,
		"Error 1062 (23000): Duplicate entry '" + message + "' for key 'users.name'":                                        false,
		"Error 1062 (23000): Duplicate entry 'uid_follow: too late at 1795492993486 (45U01)' for key 'users.name'":          false,
		"Error 1644 (45000): uid_follow: too late of (45U01)":                                                               false,
		"Error 1644 (45U01): a trigger of the application has refused 'uid_follow: too late'":                               false,
		"constraint failed: uid_follow: too late: the id is below the mark of events; create it again with a new id (1811)": true,
	} {
		if _, ok := TooLate(errors.New(text)); ok != want {
			t.Errorf("%s: %t", text, ok)
		}
	}
}
