package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

type sender struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

type letter struct {
	ID       uidplugin.ID `gorm:"primaryKey;uid"`
	Town     string
	SenderID *uidplugin.ID
	Sender   *sender
	Stamps   []stamp
}

type stamp struct {
	ID       uidplugin.ID `gorm:"primaryKey;uid"`
	LetterID uidplugin.ID
	Price    int
}

const slack = 200 * time.Millisecond

// office opens a database whose letters and stamps are followed.
func office(t *testing.T, d *testkit.Database, options ...uidplugin.Option) *gorm.DB {
	t.Helper()
	db := d.Open(t, nil)
	p := harness.Use(t, db, append(options, uidplugin.WithModels(&sender{}, &letter{}, &stamp{}))...)
	testkit.Must(t, p.AutoMigrate(&sender{}, &letter{}, &stamp{}))
	for _, model := range []any{&letter{}, &stamp{}} {
		testkit.Must(t, follow.Enable(t.Context(), db, model, follow.WithSlack(slack)))
	}
	return db
}

// add creates a row, again if the machine was so busy that it came too late.
func add(t *testing.T, db *gorm.DB, value any) {
	t.Helper()
	inTime(t, func() error { return db.Create(value).Error })
}

// inTime creates rows, again if the machine was so busy that they came too late.
func inTime(t *testing.T, create func() error) {
	t.Helper()
	testkit.Eventually(t, "the rows always came too late", time.Minute, func() bool {
		err := create()
		if err != nil && !errors.Is(err, follow.ErrTooLate) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// collect follows until it has n rows.
func collect[T any](t *testing.T, db *gorm.DB, after uidplugin.ID, n int) (rows []*T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for row, err := range follow.Rows[T](ctx, db, after) {
		if err != nil && ctx.Err() == nil && harness.Unreachable.MatchString(err.Error()) {
			continue // a process that stands still for seconds, as on a busy machine, loses its connection
		}
		testkit.Must(t, err)
		if rows = append(rows, row); len(rows) == n {
			break
		}
	}
	return rows
}

// Rows that exist come first, then those that are created meanwhile, in the order of their ids.
func TestFollow_ReturnsOldRowsAndNewOnes(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		var ids []uidplugin.ID
		create := func() {
			l := letter{Town: "Ely"}
			add(t, db, &l)
			ids = append(ids, l.ID)
		}
		for range 3 {
			create()
		}
		n := 0
		for l, err := range follow.Rows[letter](t.Context(), db, 0) {
			testkit.Must(t, err)
			if l.ID != ids[n] {
				t.Fatalf("row %d is %d instead of %d", n, l.ID, ids[n])
			}
			if n++; n == 6 {
				break
			}
			if n >= 3 {
				create()
			}
		}
		if again := collect[letter](t, db, ids[1], 4); again[0].ID != ids[2] || again[3].ID != ids[5] {
			t.Errorf("after %d came %d and %d", ids[1], again[0].ID, again[3].ID)
		}
	})
}

func TestFollow_AppliesTheConditionsOfTheHandle(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		for i := range 1200 {
			l := letter{Town: []string{"Ely", "Bath", "York"}[i%3]}
			if i%3 == 0 {
				l.Sender, l.Stamps = &sender{Name: "Ann"}, []stamp{{Price: 1}, {Price: i}}
			}
			if i < 9 {
				add(t, db, &l)
			}
		}
		got := collect[letter](t, db.Where("town = ?", "Ely").Or("town = ?", "York").Preload("Stamps").Joins("Sender"), 0, 6)
		for i, l := range got {
			town, stamps := []string{"Ely", "York"}[i%2], []int{2, 0}[i%2]
			if l.Town != town || len(l.Stamps) != stamps || (l.Sender != nil && l.Sender.Name == "Ann") != (stamps > 0) {
				t.Errorf("letter %d: %+v", i, l)
			}
		}
		for name, handle := range map[string]*gorm.DB{"Order": db.Order("id"), "Limit": db.Limit(1), "Omit": db.Omit("id"), "Table": db.Table("senders")} {
			for _, err := range follow.Rows[letter](t.Context(), handle, 0) {
				if !errors.Is(err, uidplugin.ErrClause) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
		}
	})
}

// More rows than one read returns.
func TestFollow_ReadsInChunks(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		letters := make([]letter, 1700)
		add(t, db, &letters)
		got := collect[letter](t, db, 0, len(letters))
		for i := range got {
			if got[i].ID != letters[i].ID {
				t.Fatalf("row %d is %d instead of %d", i, got[i].ID, letters[i].ID)
			}
		}
	})
}

// The table is complete below the id.
func TestSettled_FollowsTheClock(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		l := letter{}
		add(t, db, &l)
		testkit.Eventually(t, "the mark passes the row", time.Minute, func() bool { return settled(t, db, &letter{}) > l.ID })
	})
}

func TestFollow_RefusesWhatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	d := testkit.Engines()[0].New(t)
	db := office(t, d)
	type plain struct{ ID int }
	type text struct {
		ID string `gorm:"primaryKey;size:20;uid"`
	}
	type part struct {
		Number int    `gorm:"primaryKey"`
		Code   string `gorm:"size:30"`
		Serial uint64 `gorm:"uid"`
	}
	for name, tt := range map[string]struct {
		model any
		want  error
	}{
		"no uid field": {&plain{}, uidplugin.ErrNoField},
		"a text":       {&text{}, uidplugin.ErrNotKey},
		"no key":       {&part{}, uidplugin.ErrNotKey},
	} {
		if err := follow.Enable(t.Context(), db, tt.model); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	first := func(db *gorm.DB, after uidplugin.ID) (err error) {
		for _, err = range follow.Rows[sender](t.Context(), db, after) {
			break
		}
		return err
	}
	for name, tt := range map[string]struct{ err, want error }{
		"a table that is not enabled": {first(db, 0), follow.ErrNotEnabled},
		"a negative cursor":           {first(db, -1), uidplugin.ErrNegativeID},
		"a cursor in the future":      {first(db, 1<<62), uidplugin.ErrFutureID},
		"a handle without the plugin": {first(d.Open(t, nil), 0), uidplugin.ErrNotRegistered},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
	for _, slack := range []time.Duration{-1, time.Millisecond, 2 * time.Hour} {
		testkit.IsError(t, follow.Enable(t.Context(), db, &sender{}, follow.WithSlack(slack)), uidplugin.ErrOption, "WithSlack", slack.String())
	}
}

// The trigger may be dropped, or lost when GORM's migrator creates a table of SQLite again.
func TestFollow_NoticesThatTheTriggerIsGone(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		add(t, db, &letter{Town: "Ely"})
		drop := map[string]string{
			"postgres": "SELECT format('DROP TRIGGER %I ON letters', tgname) FROM pg_trigger WHERE tgrelid = 'letters'::regclass",
			"sqlite":   "SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'letters'",
		}[d.Name]
		if drop == "" {
			drop = "SELECT CONCAT('DROP TRIGGER ', TRIGGER_NAME) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = 'letters'"
		}
		var errs []error
		for _, err := range follow.Rows[letter](t.Context(), db, 0) {
			if err == nil { // the first row
				var statement string
				testkit.Must(t, db.Raw(drop).Scan(&statement).Error)
				testkit.Must(t, db.Exec(statement).Error)
				continue
			}
			errs = append(errs, err)
			if len(errs) == 2 {
				break
			}
		}
		for _, err := range errs {
			testkit.IsError(t, err, follow.ErrNotEnabled, "letters", "trigger is gone", "follow.Enable")
		}
	})
}

// A follower ends with its context, and tells why.
func TestFollow_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	db := office(t, testkit.Engines()[0].New(t))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { time.Sleep(100 * time.Millisecond); cancel(why) }()
	var errs []error
	for _, err := range follow.Rows[letter](ctx, db, 0) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], why) {
		t.Error(errs)
	}
}

// Inside a transaction a follower would never see a new row.
func TestFollow_RefusesATransaction(t *testing.T) {
	t.Parallel()
	db := office(t, testkit.Engines()[0].New(t))
	tx := db.Begin()
	defer tx.Rollback()
	for _, err := range follow.Rows[letter](t.Context(), tx, 0) {
		if err == nil || !strings.Contains(err.Error(), "transaction") {
			t.Error(err)
		}
	}
}

// Twenty followers share one goroutine and the same rows.
func TestFollow_ManyFollowersSeeTheSame(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		results := make(chan []uidplugin.ID)
		for range 20 {
			go func() {
				var ids []uidplugin.ID
				for l, err := range follow.Rows[letter](t.Context(), db, 0) {
					if err != nil {
						t.Error(err)
						break
					}
					if ids = append(ids, l.ID); len(ids) == 50 {
						break
					}
				}
				results <- ids
			}()
		}
		for range 50 {
			add(t, db, &letter{})
		}
		first := <-results
		for range 19 {
			if other := <-results; !slices.Equal(first, other) {
				t.Errorf("%v and %v", first, other)
			}
		}
	})
}

// The database falls back to an older mark, as after the failover to a replica that was behind.
func TestFollow_WithRewindGoesBackToTheRecoveredMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		towns := func(options ...follow.RowsOption) (all []string) {
			testkit.Must(t, db.Where("1 = 1").Delete(&letter{}).Error)
			var ids []uidplugin.ID
			for i := range 3 {
				l := letter{Town: string(rune('a' + i))}
				add(t, db, &l)
				ids = append(ids, l.ID)
			}
			for l, err := range follow.Rows[letter](t.Context(), db, ids[0]-1, options...) {
				testkit.Must(t, err)
				all = append(all, l.Town)
				switch {
				case l.Town == "last":
					return all
				case len(all) == 3:
					q := db.Statement.Quote
					fall := fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s = 'letters'", q("UID_FOLLOW"), q("PUBLISHED"), q("TABLE_NAME"))
					testkit.Must(t, db.Exec(fall, int64(ids[1])).Error)
					add(t, db, &letter{Town: "last"})
				}
			}
			return all
		}
		if got := towns(); !slices.Equal(got, []string{"a", "b", "c", "last"}) {
			t.Errorf("without the option: %v", got)
		}
		if got := towns(follow.WithRewind()); !slices.Equal(got, []string{"a", "b", "c", "b", "c", "last"}) {
			t.Errorf("with the option: %v", got)
		}
	})
}

// A handler needs the connection for its transaction, and so does the goroutine that advances the mark.
func TestFollow_NeedsOnlyOneConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		n := 0
		add(t, db, &letter{Town: "Ely"})
		for l, err := range follow.Rows[letter](t.Context(), db, 0) {
			testkit.Must(t, err)
			inTime(t, func() error {
				return db.Transaction(func(tx *gorm.DB) error {
					if err := tx.Model(l).Update("town", "York").Error; err != nil {
						return err
					}
					time.Sleep(200 * time.Millisecond)
					return tx.Create(&letter{Town: "Ely"}).Error
				})
			})
			if n++; n == 5 {
				break
			}
		}
	})
}

// The next process closes at once when the closer ends. Without that it would wait for the end of the closer's turn.
func TestFollow_TheCloserGivesItsTurnBack(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		other := d.Open(t, nil)
		harness.Use(t, other, uidplugin.WithModels(&letter{}))
		add(t, db, &letter{})
		collect[letter](t, db, 0, 1)
		var until int64
		q := db.Statement.Quote
		read := fmt.Sprintf("SELECT %s FROM %s WHERE %s = 'letters'", q("CLOSER_UNTIL"), q("UID_FOLLOW"), q("TABLE_NAME"))
		testkit.Eventually(t, "the turn ends", time.Minute, func() bool {
			testkit.Must(t, db.Raw(read).Scan(&until).Error)
			return until == 0
		})
		collect[letter](t, other, 0, 1)
	})
}
