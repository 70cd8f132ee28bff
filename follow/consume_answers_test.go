package follow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// consumeUntilCanceled runs a consumer, whose context the test ends.
func consumeUntilCanceled(ctx context.Context, t *testing.T, db *gorm.DB) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- follow.Consume(ctx, db, "mails", write("mails")) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the consumer does not end")
	}
}

// awaitError waits until the consumer of a process has an error.
func awaitError(t *testing.T, db *gorm.DB, want string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(fmt.Sprint(consumerOf(db).LastError), want) {
			return
		}
	}
	t.Errorf("the last error of the consumer is %v", consumerOf(db).LastError)
}

// A server that does not answer keeps no consumer from ending.
func TestConsume_EndsWhileAFetchWaitsForTheServer(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var fetching atomic.Int64
	release := make(chan struct{})
	defer close(release)
	var stuck atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			fetching.Store(int64(c.Conn))
		}
		if c.SQL == "BEGIN" && stuck.Load() {
			cancel()
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-release:
				return errors.New("no network")
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !c.Inside { // the consumer holds the cursor; the next transaction fetches
			stuck.Store(true)
		}
		return err
	})
	consumeUntilCanceled(ctx, t, db)
}

// COMMIT does not return, as on a network drive. The consumer still logs that, and ends with its context.
func TestConsume_EndsWhileACommitDoesNotReturn(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	var handling atomic.Int64
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && c.Is("INSERT INTO effects") {
			handling.Store(int64(c.Conn))
		}
		if c.SQL == "COMMIT" && handling.Load() == int64(c.Conn) {
			cancel()
			<-release
		}
		return c.Run()
	})
	consumeUntilCanceled(ctx, t, db)
}

// A server that does not answer BEGIN or COMMIT makes no follower stand still without an error.
func TestConsume_AFetchThatGetsNoAnswerFails(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 20 s")
	for _, statement := range []string{"BEGIN", "COMMIT"} {
		want := "follow tickets: " + statement + ": no answer within 10s"
		for _, into := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s into=%v", statement, into), func(t *testing.T) {
				t.Parallel()
				var wire testkit.Wire
				db, _ := wired(t, &wire, 1)
				effects, options := db, []follow.ConsumeOption(nil)
				if into {
					effects = testkit.SQLite{}.Open(t)
					testkit.Must(t, effects.AutoMigrate(&ticket{}, &effect{}))
					options = append(options, follow.Into(effects))
				}
				answer := holdUp(t, &wire, statement, into)
				until(t, effects, 1, func(ctx context.Context) error {
					go func() {
						defer answer()
						awaitError(t, db, want)
					}()
					return follow.Consume(ctx, db, "mails", write("mails"), options...)
				})
				if !into {
					checkEffects(t, db)
				}
			})
		}
		t.Run(statement+" of Rows", func(t *testing.T) {
			t.Parallel()
			var wire testkit.Wire
			db, _ := wired(t, &wire, 1)
			answer := holdUp(t, &wire, statement, true)
			defer answer()
			for row, err := range follow.Rows[ticket](t.Context(), db, 0) {
				if err == nil {
					break
				}
				if answer(); !strings.Contains(err.Error(), want) {
					t.Error(row, err)
				}
			}
		})
	}
}

// The statement that reads rows gets no answer. It may be slow, so it is not ended, but an operator must see it.
func TestConsume_ASlowFetchIsAnError(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var log testkit.Log
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1, uidplugin.WithLogger(log.Logger()))
	answers := make(chan struct{})
	answer := sync.OnceFunc(func() { close(answers) })
	defer answer()
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			<-answers
		}
		return c.Run()
	})
	until(t, db, 1, func(ctx context.Context) error {
		go func() {
			defer answer()
			awaitError(t, db, "has taken ten seconds")
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	log.SaysOnce(t, "has taken ten seconds")
	checkEffects(t, db)
}

// The answer to the statement that takes the cursor is lost, and then the consumer ends. The next process does not have
// to wait until the term of the first one is over.
func TestConsume_EndsItsTermAlsoIfItDoesNotKnowOfIt(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var taken atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !taken.Swap(true) {
			cancel()
			return testkit.ErrLost
		}
		return err
	})
	consumeUntilCanceled(ctx, t, db)
	var holder string
	testkit.Must(t, db.Table("UID_CURSOR").Select("HOLDER").Row().Scan(&holder))
	if !taken.Load() || holder != "" {
		t.Errorf("the holder is %q", holder)
	}
}

// The answer to the statement that passes a row over, or that stores its failure, is lost. The log has that, and then
// that the consumer goes on, although the statement is not repeated.
func TestConsume_TheLogSaysThatItGoesOnAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for what, failure := range map[string]error{"move the cursor": follow.Skip, "store the failure": errors.New("no route")} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var log testkit.Log
			var wire testkit.Wire
			db, _ := wired(t, &wire, 2, uidplugin.WithLogger(log.Logger()))
			var failed, lost atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				err := c.Run()
				if c.Is("UPDATE UID_CURSOR") && !c.Inside && failed.Load() && !lost.Swap(true) {
					return testkit.ErrLost
				}
				return err
			})
			n := map[error]int64{follow.Skip: 1}[failure]
			until(t, db, 2-n, func(ctx context.Context) error {
				return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
					if !failed.Swap(true) {
						return failure
					}
					return write("mails")(tx, row)
				})
			})
			log.SaysOnce(t, "what=\""+what+"\"")
			log.SaysOnce(t, "after=\""+what+"\"")
			checkEffectsOf(t, db, ids(t, db)[n:])
		})
	}
}

// The answer to the statement that takes the cursor is lost. The statement is not repeated, because fetches extend the
// term. They find no row that matches, so nothing is handled. The state has no error any more.
func TestConsume_ForgetsALostAnswerWithoutRowsToHandle(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db, file := wired(t, &wire, 1)
	writer := file.Open(t)
	plugintest.Use(t, writer, uidplugin.WithWorkerID(2))
	var lost atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if c.Is("SELECT LAST_ID") && !lost.Load() { // the term ends later by this time
			if err := c.Sleep(500 * time.Millisecond); err != nil {
				return err
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !lost.Swap(true) {
			return errors.New("the answer was lost")
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		awaitError(t, db, "the answer was lost")
		for begin := time.Now(); consumerOf(db).LastError != nil; time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Errorf("the error is still %v", consumerOf(db).LastError)
				return
			}
			_ = writer.Create(&ticket{Seat: "1A"}).Error // which may be too late
		}
	}()
	consumeUntilCanceled(ctx, t, db.Where("seat = ?", "9Z"))
}

// A fetch has failed. Later ones succeed, and find no row that matches. Each takes so long that the mark advances
// meanwhile, so the consumer fetches again at once, and never waits. The state has no error any more.
func TestConsume_ForgetsAnErrorWhileTheMarkAdvancesDuringEachFetch(t *testing.T) {
	t.Parallel()
	var events, effects testkit.Wire
	db, file := wired(t, &events, 1)
	writer, into := file.Open(t), effects.Open(t, testkit.SQLite{})
	plugintest.Use(t, writer, uidplugin.WithWorkerID(2))
	testkit.Must(t, into.AutoMigrate(&effect{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent atomic.Int64
	events.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") && sent.Add(1) <= 2 { // a fetch that fails sends two
			return errors.New("disk I/O error")
		}
		return c.Run()
	})
	effects.Set(func(c *testkit.Crossing) error {
		if c.Is("UPDATE UID_CURSOR") && sent.Load() > 2 && ctx.Err() == nil { // the end of a fetch
			for range 2 { // because the mark that it has read may be newer than the one that the consumer knows
				for before := follow.Stats(db)[0].Settled; ctx.Err() == nil && follow.Stats(db)[0].Settled == before; {
					_ = writer.Create(&ticket{Seat: "1A"}).Error // which may be too late
				}
			}
		}
		return c.Run()
	})
	ended := make(chan error, 1)
	go func() {
		ended <- follow.Consume(ctx, db.Where("seat = ?", "9Z"), "mails", write("mails"), follow.Into(into))
	}()
	awaitError(t, db, "disk I/O error")
	testkit.Eventually(t, "no error", time.Minute, func() bool { return consumerOf(db).LastError == nil })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The database of the effects does not answer, either. Each statement that keeps the cursor then takes ten seconds, and
// an operator must not wait for ten of them.
func TestConsume_IntoASlowFetchIsAnErrorAlsoIfTheCursorCannotBeKept(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 11 s")
	var events, effects testkit.Wire
	db, _ := wired(t, &events, 1)
	into := effects.Open(t, testkit.SQLite{})
	testkit.Must(t, into.AutoMigrate(&effect{}))
	answers := make(chan struct{})
	answer := sync.OnceFunc(func() { close(answers) })
	defer answer()
	var fetching atomic.Bool
	var waited atomic.Int64
	events.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			fetching.Store(true)
			<-answers
		}
		return c.Run()
	})
	effects.Set(func(c *testkit.Crossing) error {
		if c.Is("UPDATE UID_CURSOR") && fetching.Load() {
			waited.Add(1)
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-answers:
			}
		}
		return c.Run()
	})
	until(t, into, 1, func(ctx context.Context) error {
		go func() {
			defer answer()
			awaitError(t, db, "has taken ten seconds")
			if n := waited.Load(); n > 3 {
				t.Errorf("it was noted after %d statements", n)
			}
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
	})
	checkEffectsOf(t, into, ids(t, db))
}

// A slow statement fails at last. The log has the reason, too.
func TestConsume_ASlowFetchThatFailsHasItsReasonInTheLog(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var log testkit.Log
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1, uidplugin.WithLogger(log.Logger()))
	slow := make(chan struct{})
	var failed atomic.Int64
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") && failed.Add(1) < 5 {
			<-slow
			return errors.New("the query was too long")
		}
		return c.Run()
	})
	until(t, db, 1, func(ctx context.Context) error {
		go func() {
			defer close(slow)
			awaitError(t, db, "has taken ten seconds")
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	log.SaysOnce(t, "has taken ten seconds")
	log.SaysOnce(t, "the query was too long")
	checkEffects(t, db)
}

// With Into a fetch has no lock on the cursor. Formerly, if it took longer than the term of the process, another
// process took the cursor meanwhile, and the fetched rows could not be handled. The other process did not get further,
// either.
func TestConsume_IntoASlowFetchKeepsTheCursor(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for some seconds")
	var wire testkit.Wire
	db, file := wired(t, &wire, 2)
	other := wire.Open(t, file)
	plugintest.Use(t, other, uidplugin.WithWorkerID(2))
	into := testkit.SQLite{}.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			if err := c.Sleep(5 * time.Second); err != nil {
				return err
			}
		}
		return c.Run()
	})
	until(t, into, 2, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no process handles rows"))
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- follow.Consume(ctx, other, "mails", write("mails"), follow.Into(into)) }()
		err := follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
		<-ended
		return err
	})
	checkEffectsOf(t, into, ids(t, db))
}

// holdUp makes a statement wait until answer is called: at once, or once a consumer holds its cursor.
func holdUp(t *testing.T, wire *testkit.Wire, statement string, atOnce bool) (answer func()) {
	t.Helper()
	var holds atomic.Bool
	holds.Store(atOnce)
	answers := make(chan struct{})
	wire.Set(func(c *testkit.Crossing) error {
		if c.SQL == statement && holds.Load() {
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-answers:
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !c.Inside { // the next transaction fetches
			holds.Store(true)
		}
		return err
	})
	return sync.OnceFunc(func() { close(answers) })
}
