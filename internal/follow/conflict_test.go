package follow

import "testing"

// A postgresError is an error of PostgreSQL.
type postgresError struct{ state, text string }

func (e postgresError) Error() string    { return e.text }
func (e postgresError) SQLState() string { return e.state }

// CREATE TABLE IF NOT EXISTS of PostgreSQL fails in several ways if another session creates the table at the same time.
func TestEnable_RepeatsWhatAnotherSessionCreates(t *testing.T) {
	t.Parallel()
	for err, want := range map[postgresError]bool{
		{"42P07", `relation "UID_FOLLOW" already exists`}:                                       true,
		{"42710", `type "UID_FOLLOW" already exists`}:                                           true,
		{"23505", `duplicate key value violates unique constraint "pg_type_typname_nsp_index"`}: true,
		{"42710", `trigger "uid_follow_events" for relation "events" already exists`}:           false,
		{"23505", `duplicate key value violates unique constraint "events_pkey"`}:               false,
	} {
		if got := isConflict(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
