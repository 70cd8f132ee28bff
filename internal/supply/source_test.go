package supply

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestSourceNext_SaysWhyThereIsNoGenerator(t *testing.T) {
	t.Parallel()

	src := supplying(t, opens(&counting{})).source(t, "orders", "mine")
	for _, tt := range []struct {
		why, is error
		says    string
	}{
		{errBroken, errBroken, "the cable is broken"},
		{nil, errNoGenerator, "uidplugin: no id for table orders: the table has no generator yet; repeat the create"},
	} {
		id, err := src.Next(t.Context(), tt.why)
		testkit.IsError(t, err, tt.is, tt.says)
		testkit.IsError(t, src.Fill(t.Context(), make([]int64, 2), tt.why), tt.is, tt.says)
		if id != 0 {
			t.Errorf("the id %d", id)
		}
	}
}

// Once there is a generator, why does not matter any more, and its own errors name the table.
func TestSourceNext_IsThatOfTheGenerator(t *testing.T) {
	t.Parallel()

	g := &counting{last: 41}
	s := supplying(t, opens(g))
	src := s.source(t, "orders", "mine")
	testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src}))
	id, err := src.Next(t.Context(), errBroken)
	ids := make([]int64, 2)
	testkit.Must(t, errors.Join(err, src.Fill(t.Context(), ids, errBroken)))
	if id != 42 || ids[0] != 43 || ids[1] != 44 {
		t.Errorf("%d and %v", id, ids)
	}
	g.err = errBroken
	id, err = src.Next(t.Context(), nil)
	testkit.IsError(t, err, errBroken, "uidplugin: no id for table orders: the cable is broken")
	testkit.IsError(t, src.Fill(t.Context(), ids, nil), errBroken, "uidplugin: no id for table orders")
	if id != 0 {
		t.Errorf("with an error the id is %d", id)
	}
	g.Close()
	_, err = src.Next(t.Context(), nil)
	testkit.IsError(t, err, ErrClosed, "no id for table orders")
	if errors.Is(err, generator.ErrClosed) {
		t.Errorf("%v: the application knows one ErrClosed", err)
	}
}

// Health says since when, so an outage keeps its beginning until it is over.
func TestOutageNote_KeepsTheBeginning(t *testing.T) {
	t.Parallel()

	var o outage
	at := func(minute int) time.Time { return instant.Add(time.Duration(minute) * time.Minute) }
	other := errors.New("other")
	for _, step := range []struct {
		err   error
		now   time.Time
		since time.Time
	}{
		{nil, at(0), time.Time{}}, {errBroken, at(1), at(1)}, {other, at(2), at(1)},
		{nil, at(3), time.Time{}}, {other, at(4), at(4)},
	} {
		o.note(step.err, step.now)
		if o.err != step.err || !o.since.Equal(step.since) {
			t.Errorf("after %v: %v since %v", step.err, o.err, o.since)
		}
	}
}

func TestSupplyStates_AreThoseOfSourcesWithAGenerator(t *testing.T) {
	t.Parallel()

	s := supplying(t, func(_ context.Context, table string) (generator.Generator, error) {
		if table == "broken" {
			return nil, errBroken
		}
		return &counting{}, nil
	})
	sources := []*Source{s.source(t, "any", "")}
	for _, table := range []string{"z", "broken", "a"} {
		sources = append(sources, s.source(t, table, "mine"))
	}
	if got := s.States(); len(got) != 0 {
		t.Errorf("at first %+v", got)
	}
	testkit.IsError(t, s.Ensure(t.Context(), nil, sources), errBroken)
	got := s.States()
	if len(got) != 3 || got[0].Tag != AllTables || got[1].Tag != "a" || got[2].Tag != "z" {
		t.Fatalf("%+v", got)
	}
	if all := got[0]; all.Generator != Cached || len(all.Leases) != 1 || all.Leases[0].WorkerID != 7 || all.Lead != 0 || all.Made != 0 {
		t.Errorf("%+v", all)
	}
	if a := got[1]; a.Generator != "mine" || a.Leases != nil || a.Lead != time.Minute || a.Made != 12 || a.Waits != 3 {
		t.Errorf("%+v", a)
	}
}

func TestSupplyHealth_IsThatOfAllSources(t *testing.T) {
	t.Parallel()

	healths := map[string]func() error{
		"b": func() error { return errBroken }, "c": func() error { panic("boom") }, "d": func() error { return nil },
	}
	s := supplying(t, func(_ context.Context, table string) (generator.Generator, error) {
		if table == "a" {
			return nil, errBroken
		}
		return &counting{health: healths[table]}, nil
	})
	var sources []*Source
	for _, table := range []string{"d", "c", "b", "a"} {
		sources = append(sources, s.source(t, table, "mine"))
	}
	sources = append(sources, s.source(t, "ours", ""))
	testkit.Must(t, s.Health()) // nothing was needed yet
	testkit.IsError(t, s.Ensure(t.Context(), nil, sources), errBroken)
	const want = "uidplugin: the generator mine of table a could not be opened" +
		" since 2026-03-01 12:00:00 UTC: the cable is broken\n" +
		"uidplugin: the generator mine of table b: the cable is broken\n" +
		"uidplugin: the generator mine of table c: panicked: boom"
	if err := s.Health(); !errors.Is(err, errBroken) || err.Error() != want {
		t.Errorf("%v", err)
	}
}
