package inspector

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Statements that insert rows, without the rows.
const (
	insertSlot = `INSERT INTO WORKER_SLOT (ID, LAYOUT, REUSABLE, FENCE, VERSION, HOLDER, SEEN_TICK,
		APPLICATION, HOST_NAME, PORT) `
	insertSession = `INSERT INTO WORKER_SESSION (SLOT, START_TICK, BEFORE_TICK, APPLICATION, HOST_NAME, PORT, TYPE,
		LAUNCHED, HOLDER) `
	insertNode = `INSERT INTO WORKER_NODE (ID, HOST_NAME, PORT, TYPE, LAUNCH_DATE, SLOT, DATABASE_NAME, TABLE_NAME,
		LAYOUT, START_TICK) `
)

// insertSlots inserts the slots 1001 to 1010. The session of the i-th began i ticks after the first tick.
func (s *site) insertSlots(tb testing.TB) {
	tb.Helper()
	layout := s.handler.layout.String()
	for i := 1; i <= 10; i++ {
		testkit.Must(tb, s.db.Exec(insertSlot+`VALUES (?, ?, 1, ?, 1, '', ?, 'app', 'host', ?)`,
			1000+i, layout, i+10, i+5, fmt.Sprint(i)).Error)
		s.insertSession(tb, int64(1000+i), int64(i), "host")
	}
}

func (s *site) insertSession(tb testing.TB, slot, start int64, host string) {
	tb.Helper()
	testkit.Must(tb, s.db.Exec(insertSession+`VALUES (?, ?, 0, 'app', ?, '1', 1, '2026-01-01 00:00:00', 'x')`,
		slot, start, host).Error)
}

// eachPage calls visit for each page of a list, and returns how many there were.
func eachPage[T any](t *testing.T, s *site, page string, visit func(T) (next string)) (n int) {
	t.Helper()
	for page != "" {
		status, data, problem := getJSON[T](t, s.handler, "/"+page)
		if status != http.StatusOK || n == 100 {
			t.Fatalf("%s: %d, %+v", page, status, problem)
		}
		n++
		page = visit(data)
	}
	return n
}

func TestSlots_ArePaged(t *testing.T) {
	t.Parallel()
	s := open(t, WithPageSize(4))
	s.insertSlots(t)
	var ids []int64
	pages := eachPage(t, s, "slots", func(p slotsPage) string {
		for _, slot := range p.Slots {
			ids = append(ids, slot.ID)
		}
		return p.Next
	})
	if pages != 3 || len(ids) != 11 || !slices.IsSorted(ids) || slices.Compact(slices.Clone(ids))[10] != 1010 {
		t.Errorf("%d pages: %v", pages, ids)
	}
	_, body := get(t, s.handler, "/slots?after=1002")
	testkit.SaysAll(t, body, `<a href="slots">First page</a>`, `<a href="slots?after=1006" rel="next">Next page</a>`)
	shows(t, s.handler, http.StatusOK, "/slots?after=9999", "There are no slots above 9999.")
}

func TestTables_ArePaged(t *testing.T) {
	t.Parallel()
	s := open(t, WithPageSize(7))
	s.create(t, account{})
	var ids []int64
	tables := map[string]bool{}
	eachPage(t, s, "tables", func(p tablesPage) string {
		for _, w := range p.Workers {
			ids = append(ids, w.ID)
			tables[w.Table] = true
		}
		if len(p.Process) == 0 {
			t.Error("no tables of this process")
		}
		return p.Next
	})
	nodes, err := s.handler.nodes.Nodes(t.Context(), 0, 1000)
	testkit.Must(t, err)
	if len(ids) != len(nodes) || !slices.IsSorted(ids) || !tables["accounts"] || !tables["orders"] {
		t.Errorf("%v of %d; %v", ids, len(nodes), tables)
	}
	shows(t, s.handler, http.StatusOK, "/tables", "In this process", "accounts cached 1", "assigned")
}

// A sessionsJSON is what the JSON of sessions has, as far as it is tested.
type sessionsJSON struct {
	Slots []struct {
		Slot     int64
		Sessions []struct{ From time.Time }
		Earlier  int
		Next     string
	}
	Next string
}

// A slot's sessions are paged. The page of all slots has the latest of each, and says how many it leaves out.
func TestSessions_ArePaged(t *testing.T) {
	t.Parallel()
	s := open(t, WithPageSize(6))
	s.insertSlots(t)
	for i := range int64(60) {
		s.insertSession(t, 1004, 100+i, "host")
	}
	var slots []int64
	pages := eachPage(t, s, "sessions", func(p sessionsJSON) string {
		for _, v := range p.Slots {
			slots = append(slots, v.Slot)
			sessions, earlier, more := 1, 0, ""
			if v.Slot == 1004 { // the page has room for five of each slot, and counts fifty others
				sessions, earlier, more = 5, 51, "sessions?before=2018-01-01T00%3A00%3A00.156Z&slot=1004"
			}
			if len(v.Sessions) != sessions || v.Earlier != earlier || v.Next != more {
				t.Errorf("slot %d: %d sessions, %d earlier: %q", v.Slot, len(v.Sessions), v.Earlier, v.Next)
			}
		}
		return p.Next
	})
	if pages != 2 || len(slots) != 11 || !slices.IsSorted(slots) {
		t.Errorf("%d pages: %v", pages, slots)
	}
	var from []time.Time
	pages = eachPage(t, s, "sessions?slot=1004", func(p sessionsJSON) string {
		for _, session := range p.Slots[0].Sessions {
			from = append(from, session.From)
		}
		return p.Next
	})
	descending := slices.IsSortedFunc(from, func(a, b time.Time) int { return b.Compare(a) })
	if pages != 11 || len(slices.CompactFunc(from, time.Time.Equal)) != 61 || !descending {
		t.Errorf("%d pages: %v", pages, from)
	}
	shows(t, s.handler, http.StatusOK, "/sessions", "Not drawn: more than 50 earlier sessions of slot 1004: show them",
		"Not shown: more than 50 earlier sessions of slot 1004")
	shows(t, s.handler, http.StatusOK, "/sessions?slot=1004&before=2018-01-01T00:00:00.103Z", "that began before 2018-01-01 00:00:00.103", "First page")
}

// SQLite keeps whatever other programs write. The other databases have numbers of 64 bits and texts.
func TestLists_ShowHostileRows(t *testing.T) {
	t.Parallel()
	s := open(t, WithPageSize(4))
	own := s.create(t, account{})
	hostile := "<script>alert(1)</script>\xff\u202e\x1b[31m\u009b\U000e0001" + strings.Repeat("x", 5000) + "\x00"
	for i, n := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		id := int64(math.MaxInt64) - int64(i)*10
		testkit.Must(t, s.db.Exec(insertSlot+`VALUES (?, ?, 2, ?, ?, ?, ?, ?, ?, ?)`,
			id, hostile, n, n, hostile, n, hostile, hostile, hostile).Error)
		testkit.Must(t, s.db.Exec(insertNode+`VALUES (?, ?, ?, ?, '2026-01-01', ?, ?, ?, ?, ?)`,
			id, hostile, hostile, 99, n, hostile, hostile, s.handler.layout.String(), n).Error)
		for slot := range int64(6) {
			s.insertSession(t, id-slot, n, hostile)
		}
	}
	for _, list := range []string{"slots", "tables", "sessions", fmt.Sprintf("sessions?slot=%d", int64(math.MaxInt64))} {
		seen, escaped := map[string]bool{}, false
		for page := list; page != ""; {
			if seen[page] || len(seen) > 50 {
				t.Fatalf("%s comes again", page)
			}
			seen[page] = true
			status, body := get(t, s.handler, "/"+page)
			broken := strings.Contains(body, "<script") || strings.ContainsAny(body, "\x00\x1b\u202e")
			if status != http.StatusOK || broken || !strings.HasSuffix(body, "</html>\n") {
				t.Fatalf("%s: %d\n%.2000s", page, status, body)
			}
			escaped = escaped || strings.Contains(body, `&lt;script&gt;alert(1)&lt;/script&gt;\xff\u202e\x1b[31m\u009b\U000e0001xxx`)
			_, text := get(t, s.handler, "/"+page, "Accept", "application/json")
			if strings.ContainsAny(text, "\u009b\u202e\U000e0001") || len(text) > 30_000 {
				t.Errorf("the JSON of %s has %d bytes, or characters that a terminal obeys", page, len(text))
			}
			code, data, problem := getJSON[struct{ Next string }](t, s.handler, "/"+page)
			if code != http.StatusOK {
				t.Fatalf("%s: %d, %+v", page, code, problem)
			}
			page = data.Next
		}
		if !escaped {
			t.Errorf("%s has no hostile row", list)
		}
	}
	if status, _ := get(t, s.handler, "/id?id="+own.ID.String()); status != http.StatusOK {
		t.Errorf("an id among hostile rows: %d", status)
	}
}

func TestLists_RefuseWhatIsNoKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, target := range []string{
		"/slots?after=x", "/slots?after=99999999999999999999", "/tables?after=1.5", "/sessions?slot=x",
		"/sessions?before=yesterday",
	} {
		shows(t, s.handler, http.StatusBadRequest, target, "In the address, ")
	}
	for _, target := range []string{
		"/slots?after=-9223372036854775808", "/slots?after=9223372036854775807", "/sessions?before=0001-01-01T00:00:00Z",
		"/sessions?before=9999-12-31T23:59:59Z", "/sessions?slot=-1",
	} {
		if status, body := get(t, s.handler, target); status != http.StatusOK {
			t.Errorf("%s: %d, %s", target, status, words(body))
		}
	}
}

// Nothing is loaded whole, however much there is.
func TestLists_ReadAPageAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it inserts 300,000 rows")
	}
	t.Parallel()
	s := open(t)
	rows := 100_000
	if testkit.Race {
		rows = 2000 // the detector finds nothing in SQLite, and makes it slow
	}
	numbers := fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 2001 UNION ALL SELECT i + 1 FROM n WHERE i < %d) `, 2000+rows)
	layout := s.handler.layout.String()
	testkit.Must(t, s.db.Exec(insertSlot+numbers+`SELECT i, ?, 1, i, 1, '', i, 'app', 'host', 'port' FROM n`,
		layout).Error)
	testkit.Must(t, s.db.Exec(insertSession+numbers+
		`SELECT i, i, 0, 'app', 'host', 'port', 1, '2026-01-01 00:00:00', 'x' FROM n`).Error)
	testkit.Must(t, s.db.Exec(insertNode+numbers+
		`SELECT i, 'host', 'port', 1, '2026-01-01', i, '', 'orders', ?, i FROM n`, layout).Error)
	for _, page := range []string{
		"/slots", "/slots?after=2000", "/tables", "/tables?after=2000", "/sessions",
		"/sessions?before=2018-01-01T00:00:02Z", "/sessions?slot=2000",
	} {
		begin := time.Now()
		status, body := get(t, s.handler, page)
		took := time.Since(begin)
		if rows := strings.Count(body, `<th scope="row"`); status != http.StatusOK || rows > 60 || len(body) > 60_000 {
			t.Errorf("%s: %d, %d rows, %d bytes", page, status, rows, len(body))
		}
		t.Logf("%s took %v", page, took.Round(time.Millisecond))
	}
}

// The page shares the pool of the application: many people who look at it in an incident must not take all connections.
func TestHandler_ReadsFewPagesAtOnce(t *testing.T) {
	t.Parallel()
	db, wire := testkit.OpenWire(t, testkit.Engine{Name: "sqlite"}.New(t))
	s := openOn(t, db, nil)
	s.handler.limit = time.Minute
	var mu sync.Mutex
	running, most := 0, 0
	wire.Set(func(c *testkit.Crossing) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		err := c.Run()
		mu.Lock()
		running--
		mu.Unlock()
		return err
	})
	var group sync.WaitGroup
	for i := range 60 {
		page := []string{"/", "/slots", "/sessions"}[i%3]
		group.Go(func() {
			if status, body := get(t, s.handler, page); status != http.StatusOK {
				t.Errorf("%s: %d, %s", page, status, words(body))
			}
		})
	}
	group.Wait()
	if most > maxPages {
		t.Errorf("%d pages read the database at once", most)
	}
}

// A page that gets no turn in time says so, and shows what needs no database.
func TestHandler_SaysThatOtherPagesTakeTooLong(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.handler.limit = 20 * time.Millisecond
	for range maxPages {
		s.handler.turns <- struct{}{}
	}
	for page, want := range map[string]string{"/slots": "Slots", "/": "Lease until"} {
		shows(t, s.handler, http.StatusServiceUnavailable, page, "Too many pages read the database at once", want)
	}
	<-s.handler.turns
	s.handler.limit = timeout
	if status, _ := get(t, s.handler, "/slots"); status != http.StatusOK {
		t.Errorf("with a turn: %d", status)
	}
}

// A query key may be as long as a header: an answer does not repeat all of it.
func TestHandler_RepeatsLittleOfAWrongQuery(t *testing.T) {
	t.Parallel()
	s := open(t)
	long := strings.Repeat("1", 500_000)
	for _, target := range []string{"/tables?after=", "/slots?after=", "/sessions?slot=", "/sessions?before=", "/id?id="} {
		for _, format := range []string{"", "&format=json"} {
			if status, body := get(t, s.handler, target+long+format); status != http.StatusBadRequest || len(body) > 20_000 {
				t.Errorf("%s%s: %d, %d bytes", target, format, status, len(body))
			}
		}
	}
}
