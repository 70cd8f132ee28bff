package follow_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestTableStats_JSON(t *testing.T) {
	t.Parallel()

	for want, s := range map[string]follow.TableStats{
		`{"table":"events","too_late":2,"followers":1,"settled":"5","delay":"1.5s","last_error":"gone"}`: {
			Table: "events", TooLate: 2, Followers: 1, Settled: 5, Delay: 1500 * time.Millisecond, LastError: errors.New("gone")},
		`{"table":"events","too_late":0,"followers":0,"settled":"0","delay":"0s"}`: {Table: "events"},
	} {
		got, err := json.Marshal(s)
		testkit.Must(t, err)
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestConsumerStats_JSON(t *testing.T) {
	t.Parallel()

	for want, s := range map[string]follow.ConsumerStats{
		`{"consumer":"mails","works":true,"paused":false,"last":"5","handled":3,"failed":2,"skipped":1,"stuck":"7","delay":"1.5s","last_error":"gone"}`: {
			Consumer: "mails", Works: true, Last: 5, Handled: 3, Failed: 2, Skipped: 1, Stuck: 7, Delay: 1500 * time.Millisecond,
			LastError: errors.New("gone")},
		`{"consumer":"mails","works":false,"paused":true,"last":"0","handled":0,"failed":0,"skipped":0,"stuck":"0","delay":"0s"}`: {
			Consumer: "mails", Paused: true},
	} {
		got, err := json.Marshal(s)
		testkit.Must(t, err)
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestStats_OfAHandleWithoutThePlugin(t *testing.T) {
	t.Parallel()

	if s := follow.Stats(nil); s != nil {
		t.Errorf("%+v", s)
	}
	if s := follow.Stats(testkit.SQLite{}.Open(t)); s != nil {
		t.Errorf("%+v", s)
	}
}
