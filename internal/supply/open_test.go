package supply

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A panic or a nil generator of an application's opener becomes an error.
func TestSupplyOpen_SurvivesOpeners(t *testing.T) {
	t.Parallel()

	for says, open := range map[string]opener{
		"its opener panicked: boom": func(context.Context, string) (generator.Generator, error) { panic("boom") },
		"its opener returned nil":   opens(nil),
		"opener returned nil":       opens((*counting)(nil)),
		"the cable is broken":       func(context.Context, string) (generator.Generator, error) { return nil, errBroken },
	} {
		s := supplying(t, open)
		src := s.source(t, "orders", "mine")
		err := s.Ensure(t.Context(), nil, []*Source{src})
		testkit.IsError(t, err, nil, "uidplugin: the generator mine of table orders cannot be opened: ", says)
		if src.Ready() {
			t.Errorf("%s: there is a generator all the same", says)
		}
	}
}

// Before Start the openers must not be called in the background: they may need callbacks that are not registered yet.
func TestSupplyStart_OpensWhatIsNotOpenAndTriesAgain(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var calls, first, longest atomic.Int64 // and the first and longest pauses between them
		var latest time.Time
		var open atomic.Bool
		log := &testkit.Log{}
		s := supplying(t, func(context.Context, string) (generator.Generator, error) {
			switch pause := int64(time.Since(latest)); calls.Load() {
			case 0, 1: // before and in Start
			case 2:
				first.Store(pause)
			default:
				longest.Store(max(longest.Load(), pause))
			}
			latest = time.Now()
			if calls.Add(1); !open.Load() {
				return nil, errBroken
			}
			return &counting{}, nil
		}, func(c *Config) { c.Log = log.Logger() })
		src := s.source(t, "orders", "mine")
		testkit.IsError(t, s.Ensure(t.Context(), nil, []*Source{src}), errBroken)
		time.Sleep(time.Hour)
		if calls.Load() != 1 || log.String() != "" {
			t.Errorf("before Start the opener was called %d times, the log is\n%s", calls.Load(), log)
		}
		s.Start([]*Source{src})
		if n := calls.Load(); n != 2 {
			t.Errorf("Start has called the opener %d times", n-1)
		}
		time.Sleep(time.Hour)
		if n := calls.Load(); n < 700 || n > 1500 {
			t.Errorf("within an hour the opener was called %d times", n)
		}
		if time.Duration(first.Load()) > time.Second || time.Duration(longest.Load()) > 5*time.Second {
			t.Errorf("the first pause was %v, the longest %v", time.Duration(first.Load()), time.Duration(longest.Load()))
		}
		open.Store(true)
		time.Sleep(time.Minute)
		if !src.Ready() {
			t.Error("it is not open")
		}
		n := calls.Load()
		time.Sleep(time.Hour)
		if more := calls.Load() - n; more != 0 {
			t.Errorf("the opener was called %d times more", more)
		}
		log.SaysOnce(t, "a generator cannot be opened; trying again until it can")
		log.SaysOnce(t, "a generator that could not be opened is open now")
	})
}

// An opener whose time is up gets a moment to say why; a generator that comes later is used all the same.
func TestSupplyOpenAll_UsesAGeneratorThatComesLate(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		opens time.Duration
		after time.Duration
		says  string // "": no error
	}{
		{"in time", 9 * time.Second, 9 * time.Second, ""},
		{"at the last moment", 10*time.Second + 50*time.Millisecond, 10*time.Second + 50*time.Millisecond, ""},
		{"late", 11 * time.Second, 10*time.Second + lateAnswer,
			"its opener did not return within 10s, the limit that WithTimeout sets"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supplying(t, func(context.Context, string) (generator.Generator, error) {
				time.Sleep(tt.opens)
				return &counting{}, nil
			})
			src := s.source(t, "orders", "mine")
			begin := time.Now()
			err := s.Ensure(t.Context(), nil, []*Source{src})
			if took := time.Since(begin); took != tt.after {
				t.Errorf("%s: after %v", tt.name, took)
			}
			if tt.says == "" {
				testkit.Must(t, err)
			} else {
				testkit.IsError(t, err, context.DeadlineExceeded, tt.says)
				testkit.IsError(t, s.Health(), context.DeadlineExceeded)
			}
			time.Sleep(tt.opens)
			testkit.Must(t, s.Health())
			if !src.Ready() {
				t.Errorf("%s: it is not open", tt.name)
			}
		})
	}
}
