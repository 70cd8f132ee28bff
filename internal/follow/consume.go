package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow/consumer"
	"github.com/uidplugin/uidplugin/internal/logqueue"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// The errors of a consumer.
var (
	ErrRemoved = errors.New("uidplugin: the cursor of the consumer was removed")
	ErrSkip    = errors.New("uidplugin: skip the row")
	ErrMoved   = errors.New("another process has changed the cursor") // ends a fetch
	errLost    = errors.New("the table's database has lost commits, or the table's mark was reset, so rows could be missed")
)

// A ConsumerSettings describes a consumer of rows of the type T, which is a pointer.
type ConsumerSettings[T any] struct {
	Key        ConsumerKey
	Host       workernode.Host // of this process
	Size       int
	Conditions string                                    // a hash of the conditions that rows must meet
	Cursors    *sqldb.DB                                 // sends the statements about the cursor
	Effects    *gorm.DB                                  // begins the transactions of handlers; its database has the cursor
	Space      func(ctx context.Context) (string, error) // returns SPACE; nil if the rows' database also has the cursor
	Log        *slog.Logger
	Start      func(ctx context.Context) (int64, error) // returns the cursor of a new consumer

	Limit  int // the most rows in a read
	Read   FetchReader[T]
	ID     func(T) int64
	IsOwn  func(T) bool
	Rewind bool
	Poll   bool // for tests: there is no mark, so read again and again

	Handle func(tx *gorm.DB, rows []T) error
	Fatal  func(error) bool // reports whether no retry can cure the error
}

// Consume handles rows until the context ends. It returns the context's cause, or an error that no retry can cure.
func Consume[T any](ctx context.Context, h *Followed, m *Mark, s ConsumerSettings[T]) error {
	log := logqueue.New(nil).Logger(s.Log)
	c := &consuming[T]{ConsumerSettings: s, mark: m, log: log.With("consumer", s.Key.Consumer, "table", s.Key.TableName()),
		process: consumer.Process{Me: processName(s.Host), Size: s.Size}, failing: map[string]error{},
		state: &consumerState{state: ConsumerState{ConsumerKey: s.Key}}}
	c.row = cursorRow{db: s.Cursors.Silent(), key: s.Key, conditions: s.Conditions, mark: m}
	h.consumers.Store(c.state, nil)
	defer h.consumers.Delete(c.state)
	defer c.release()
	for ctx.Err() == nil {
		if err := c.next(ctx); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// A consuming is a running consumer. One goroutine uses it, and during a read also the goroutine of c.keep.
type consuming[T any] struct {
	ConsumerSettings[T]
	mark    *Mark
	log     *slog.Logger
	row     cursorRow
	process consumer.Process
	state   *consumerState
	failing map[string]error // the logged errors of the steps that fail at present, by the name of the step
	stuckID int64            // the row that has last failed in this process
	cause   error            // why it has failed; nil if it was handled since

	readAt   time.Time // when the row of UID_CURSOR was last read
	rows     []T       // of the last fetch; the last len(process.IDs()) of them are not handled yet
	leave    func()    // ends following the mark; nil if this consumer does not follow it
	news     *news     // the news of the mark before the present step
	joined   *news     // the news when this consumer began to follow the mark; an error in them may be out of date
	looked   *news     // the news before the last fetch; nil if there was no fetch after joined
	losses   int       // how many entries of news.recovered are part of lowest
	lowest   int64     // lowest mark to which the database went back since the first fetch; else math.MaxInt64
	lowestOf int64     // the Mark in UID_CURSOR that lowest belongs to
	emptyAt  time.Time // when a fetch last found fewer rows than Limit; for Poll
	held     bool      // this process has tried to become the holder
}

// now estimates the database's clock: its time at the last read of the cursor, plus the time that has passed since.
func (c *consuming[T]) now() int64 {
	return c.process.Row().Now + time.Since(c.readAt).Milliseconds()
}

// next does the next step. An error ends the consumer.
func (c *consuming[T]) next(ctx context.Context) error {
	if c.process.Holds() && c.leave == nil && !c.Poll {
		c.leave = c.mark.follow()
		c.looked, c.joined = nil, c.mark.news()
	}
	if c.leave != nil {
		if c.news = c.mark.news(); c.news.err == nil {
			c.goOn(advance)
		}
		c.noticeLoss()
	}
	c.state.set(func(s *ConsumerState) { s.Passed = c.process.Passed() })
	step := c.process.Next(c.now(), c.more())
	name, err := steps[step.Kind], error(nil)
	switch step.Kind {
	case consumer.Read:
		err = c.read(ctx)
	case consumer.Insert:
		err = c.begin(ctx)
	case consumer.Removed:
		return fmt.Errorf("uidplugin: follow: %w, or its table was renamed: %s; do not call Consume again, because the consumer would begin anew", ErrRemoved, c.Key)
	case consumer.Stand:
		c.standBy()
		c.sleep(ctx, step.At)
		return nil
	case consumer.Wait:
		return c.wait(ctx, step.At)
	case consumer.Take:
		err = c.take(ctx, step)
	case consumer.Fetch:
		if err = c.fetch(ctx, step); err == nil && len(c.process.IDs()) == 0 {
			return nil // without c.note: fetch itself calls c.nothingFails when no row is left that may fail
		}
	case consumer.Handle:
		err = c.handle(ctx, step)
	case consumer.Move, consumer.Fail:
		var changed bool
		message := ""
		if failure := c.state.get().Err; failure != nil && step.Kind == consumer.Fail {
			message = failure.Error()
		}
		changed, err = c.row.change(ctx, c.row.db, step, message)
		c.process.Wrote(step, changed && err == nil)
	}
	return c.note(ctx, name, err)
}

// steps has the names of steps in the log.
var steps = map[consumer.Kind]string{
	consumer.Read: "read the cursor", consumer.Insert: "begin the cursor", consumer.Take: "hold the cursor", consumer.Fetch: "fetch rows",
	consumer.Handle: "handle rows", consumer.Move: "move the cursor", consumer.Fail: "store the failure",
}

// note notes the result of the step that has this name in the log. It returns an error if the consumer should end.
// After ErrMoved the consumer goes on at once. Another error is passed to c.fail, and then note waits for a second.
func (c *consuming[T]) note(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		c.goOn(name)
		return nil
	case errors.Is(err, ErrMoved):
		c.process.Forget()
		return nil
	case errors.Is(err, ErrNotEnabled) || errors.Is(err, errLost) || c.Fatal(err):
		return fmt.Errorf("uidplugin: follow: the consumer %s: %w", c.Key, err)
	case ctx.Err() != nil:
		return nil
	}
	c.process.Forget()
	c.fail(name, err)
	sleep(ctx, errorPause)
	return nil
}

// goOn notes that a step has succeeded.
func (c *consuming[T]) goOn(name string) {
	if c.failing[name] != nil {
		delete(c.failing, name)
		c.log.Info("uidplugin: a consumer goes on", "after", name)
	}
}

func (c *consuming[T]) read(ctx context.Context) error {
	if c.Space != nil && c.row.key.Space == "" {
		space, err := c.Space(ctx)
		if err != nil {
			return err
		}
		c.Key.Space, c.row.key.Space = space, space
	}
	c.readAt = time.Now()
	before := c.process.Row()
	row, found, err := c.row.read(ctx)
	if err != nil {
		return err
	}
	c.goOn(steps[consumer.Read])
	if c.process.Seen(row, found); found {
		c.goOn(steps[consumer.Insert]) // perhaps another process has begun the cursor, or an operator has renamed it
	}
	switch {
	case !found || row.Paused == before.Paused:
	case row.Paused:
		c.log.Info("uidplugin: a consumer was paused by an operator")
	default:
		c.log.Info("uidplugin: a consumer was resumed by an operator")
	}
	if before.Now != 0 && row.Holder == before.Holder && row.Until == before.Until && row.Last != before.Last {
		c.log.Info("uidplugin: the cursor of a consumer was set by an operator", "from", before.Last, "to", row.Last)
	}
	another := row.Holder != "" && !c.process.IsOwn(row.Holder)
	if row.Paused || another && row.Holder == before.Holder && row.Until != before.Until {
		clear(c.failing) // outdated: the consumer is paused, or another process has extended its term
	}
	c.state.set(func(s *ConsumerState) {
		s.Last, s.Holds, s.Paused = row.Last, c.process.Holds(), row.Paused
		if s.StuckID = row.StuckID; len(c.failing) == 0 {
			if s.Err = nil; row.StuckID != 0 && row.StuckID == c.stuckID {
				s.Err = c.cause
			}
		}
	})
	return nil
}

// begin inserts the cursor of a new consumer.
func (c *consuming[T]) begin(ctx context.Context) error {
	defer c.process.Forget()
	last, err := c.Start(ctx)
	if err != nil {
		return err
	}
	inserted, err := c.row.insert(ctx, last)
	if inserted {
		c.log.Info("uidplugin: a consumer has no cursor yet, so it begins with the rows after this id", "id", last)
	}
	return err
}

func (c *consuming[T]) take(ctx context.Context, step consumer.Step) (err error) {
	var changed bool
	if step.Change.Holder == step.Change.Me {
		changed, err = c.row.change(ctx, c.row.db, step, "")
		c.process.Wrote(step, changed && err == nil)
		return err
	}
	c.held = true // before the statement, because its answer may be lost
	changed, err = c.row.take(ctx, step)
	if !changed || err != nil {
		c.process.Wrote(step, false)
		if err == nil { // another process has changed the row, or has locked it because it works
			c.sleep(ctx, c.now()+consumer.Interval/2)
		}
		return err
	}
	if was := c.process.Row().Conditions; was != "" && was != c.Conditions {
		c.log.Warn("uidplugin: the conditions of a consumer have changed; rows that it has passed over do not come again")
	}
	switch before := c.process.Row().Holder; {
	case before == "":
		c.log.Info("uidplugin: a consumer works in this process now")
	case !c.process.IsOwn(before):
		c.log.Info("uidplugin: a consumer works in this process now, because the last one was killed, stands still, or needed more than 3 s"+
			" for its rows", "holder", HolderHost(before))
	}
	c.process.Wrote(step, true)
	c.state.set(func(s *ConsumerState) { s.Holds = true })
	return nil
}

// more reports whether there may be rows to fetch.
func (c *consuming[T]) more() bool {
	if c.Poll {
		return time.Since(c.emptyAt) >= pollPause
	}
	if c.leave == nil {
		return false
	}
	n := c.news
	if n.err != nil {
		return false
	}
	return n.published > c.process.Through()+1 || n != c.looked && (Cursor{c.process.Row().Last}).lost(n.published) ||
		c.lowest < math.MaxInt64
}

// wait waits until rows may have come, at most until end.
func (c *consuming[T]) wait(ctx context.Context, end int64) error {
	if c.leave == nil {
		c.sleep(ctx, min(end, c.now()+pollPause.Milliseconds()))
		return nil
	}
	n := c.news
	if n != c.joined {
		if err := c.noteMark(n.err); err != nil {
			return err
		}
	}
	if len(c.process.IDs()) > 0 { // a row has failed, and its RetryAt has not come yet
		c.sleep(ctx, end)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(end-c.now())*time.Millisecond)
	defer cancel()
	n.wait(ctx)
	return nil
}

// noteMark records an error that keeps the mark from advancing. Only ErrNotEnabled ends the consumer.
func (c *consuming[T]) noteMark(err error) error {
	if errors.Is(err, ErrNotEnabled) {
		return fmt.Errorf("uidplugin: follow: the consumer %s: %w", c.Key, err)
	}
	if err != nil {
		c.fail(advance, err)
	}
	return nil
}

// nothingFails notes that no step fails any more, because rows were handled, or there are none. goOn alone does not
// suffice, because not every failed step is repeated: it may have succeeded although its answer was lost, or an
// operator may have set the cursor.
func (c *consuming[T]) nothingFails() {
	for name := range c.failing {
		if name != advance {
			c.goOn(name)
		}
	}
}

// advance is the name in the log for the work of the mark's own goroutine.
const advance = "advance the mark"

// fail records an error of a step. Until the step succeeds, it logs only the first error. If that is errSlow, it
// also logs the first other error, which has the reason.
func (c *consuming[T]) fail(name string, err error) {
	c.state.set(func(s *ConsumerState) { s.Err = err })
	if was := c.failing[name]; was == nil || was == errSlow && err != errSlow {
		c.failing[name] = err
		c.log.Error("uidplugin: a consumer stands still because of an error, and tries again", "what", name, "error", err)
	}
}

// standBy stops following the mark, because only the holder of the cursor needs it.
func (c *consuming[T]) standBy() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
		delete(c.failing, advance)
	}
}

// release ends the term of this process, so that another process can take over at once.
func (c *consuming[T]) release() {
	c.standBy()
	if !c.held {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	released := make(chan struct{})
	go func() {
		defer cancel()
		_ = c.row.release(ctx, c.process.Me) // after an error the term ends by itself
		close(released)
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// sleep sleeps until a time of the database's clock.
func (c *consuming[T]) sleep(ctx context.Context, end int64) {
	sleep(ctx, time.Duration(end-c.now())*time.Millisecond)
}
