package follow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// Errors.
var (
	ErrNotEnabled = errors.New("uidplugin: the table is not enabled for following")
	ErrClocks     = errors.New("uidplugin: the clocks of the database and of this process differ")
)

// A Mark is the published mark of a table. All followers in a process share it. It may be used concurrently.
type Mark struct {
	db         *sqldb.DB
	statements *statements
	layout     generator.Layout
	now        func() time.Time
	me         string
	turn       chan struct{} // held by the goroutine that asks the database
	last       int64         // published, as seen by the last holder of turn
	at         time.Time     // when that was
	slack      time.Duration // of the table
}

// NewMark returns the mark of a table. now is the clock of this process.
func NewMark(db *sqldb.DB, flavor Flavor, table Table, layout generator.Layout, now func() time.Time) *Mark {
	return &Mark{db: db, statements: newStatements(flavor, table), layout: layout, now: now, me: rand.Text(), turn: make(chan struct{}, 1)}
}

// Advance publishes a new mark if this process is the closer of the table, or becomes it, and returns the published mark.
// A result that is younger than fresh is good enough. Advance waits for transactions that have inserted rows into the
// table, until the context ends.
func (m *Mark) Advance(ctx context.Context, fresh time.Duration) (int64, error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if fresh > 0 && time.Since(m.at) < fresh {
		return m.last, nil
	}
	published, err := m.advance(ctx)
	if err != nil {
		return 0, fmt.Errorf("follow %s: %w", m.statements.table.Name, err)
	}
	m.last, m.at = published, time.Now()
	return published, nil
}

// pause returns how long a follower waits for the next mark while rows come.
func (m *Mark) pause() time.Duration {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	return min(max(m.slack/8, 10*time.Millisecond), 50*time.Millisecond)
}

// Published returns the published mark without advancing it.
func (m *Mark) Published(ctx context.Context) (int64, error) {
	return m.statements.published(ctx, m.db)
}

func (m *Mark) advance(ctx context.Context) (published int64, err error) {
	err = m.db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		state, err := m.statements.state(ctx, conn)
		if err != nil {
			return err
		}
		published, m.slack = state.Published, state.Slack
		plan, err := Decide(state, m.layout, m.me, m.now())
		if err != nil || plan.Mark == 0 {
			return err
		}
		if plan.Take {
			if ok, err := m.statements.claim(ctx, conn, m.me); err != nil || !ok {
				return err
			}
		}
		published, err = m.close(ctx, conn, Round{Mark: plan.Mark}, state)
		return err
	})
	return published, err
}

// close does a round on one connection. It returns the published mark, which stays as it was if another process became
// the closer meanwhile.
func (m *Mark) close(ctx context.Context, conn *sqldb.DB, round Round, state State) (int64, error) {
	published := state.Published
	for {
		var err error
		passed := true
		switch round.Step {
		case Raise:
			err = m.statements.raise(ctx, conn, round.Mark)
		case PassIdle:
			passed, err = m.statements.pass(ctx, conn, idleGate, round.Mark)
		case PassUsed:
			if err = m.statements.divert(ctx, conn); err != nil {
				break
			}
			passed, err = m.statements.pass(ctx, conn, usedGate, round.Mark)
			err = errors.Join(err, m.statements.undivert(ctx, conn))
		case Publish:
			published, err = m.statements.publish(ctx, conn, round.Mark, state.Trigger)
		case Done:
			return published, nil
		}
		if err != nil {
			return 0, err
		}
		if passed {
			round.Passed()
			continue
		}
		if ok, err := m.statements.claim(ctx, conn, m.me); err != nil || !ok {
			return published, err
		}
	}
}

// The gates. New transactions use the first, unless the closer waits for it.
const (
	usedGate = 1
	idleGate = 2
)
