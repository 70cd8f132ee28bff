// wing: follow

package inspector

import (
	"net/http"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestTables_ShowFollowedTables(t *testing.T) {
	t.Parallel()
	s := open(t)
	if body := shows(t, s.handler, http.StatusOK, "/tables"); strings.Contains(body, "Followed") {
		t.Error("without followed tables")
	}
	testkit.Must(t, follow.Enable(t.Context(), s.db, &account{}))
	shows(t, s.handler, http.StatusOK, "/tables", "Followed tables", "accounts – – 1s – installed –")
	mark, err := follow.Settled(t.Context(), s.db, &account{})
	testkit.Must(t, err)
	status, page, problem := getJSON[tablesPage](t, s.handler, "/tables")
	if status != http.StatusOK || len(page.Followed) != 1 || page.Followed[0].Table != "accounts" || page.Followed[0].Mark != mark {
		t.Errorf("%d, %+v, %+v", status, page.Followed, problem)
	}
	shows(t, s.handler, http.StatusOK, "/tables", " 1s "+page.Followed[0].Closer+" until ", " installed –")
	var trigger string
	testkit.Must(t, s.db.Raw("SELECT name FROM sqlite_schema WHERE type = 'trigger'").Scan(&trigger).Error)
	testkit.Must(t, s.db.Exec("DROP TRIGGER "+trigger).Error)
	shows(t, s.handler, http.StatusOK, "/tables", " gone –", "its trigger is gone")
	if _, page, _ := getJSON[tablesPage](t, s.handler, "/tables?after=1"); len(page.Followed) > 0 {
		t.Errorf("on the second page: %+v", page.Followed)
	}
}

func TestTables_ShowConsumers(t *testing.T) {
	t.Parallel()
	s := open(t)
	testkit.Must(t, follow.Enable(t.Context(), s.db, &account{}))
	if body := shows(t, s.handler, http.StatusOK, "/tables"); strings.Contains(body, "Consumers") {
		t.Error("without consumers")
	}
	testkit.Must(t, s.db.Exec(`INSERT INTO "UID_CURSOR" ("CONSUMER", "SPACE", "TABLE_NAME", "LAST_ID", "STUCK_ID", "STUCK_SINCE", "ERROR") VALUES`+
		` ('<b>', '', 'accounts', 0, 7, 1767225600000, 'no <i>route'), ('mails', 'shop', 'accounts', 5, 0, 0, '')`).Error)
	body := shows(t, s.handler, http.StatusOK, "/tables", "Consumers", "&lt;b&gt; accounts stuck – ", "at 7 since 2026-01-01", "no &lt;i&gt;route",
		"the consumer &lt;b&gt; fails at the row 7 of accounts", "mails shop.accounts stopped ")
	if !strings.Contains(body, `<span class="state bad">stuck</span>`) {
		t.Error("it is not marked")
	}
	status, page, problem := getJSON[tablesPage](t, s.handler, "/tables")
	if status != http.StatusOK || len(page.Consumers) != 2 || page.Consumers[0].StuckID != 7 || page.Consumers[1].Rows != -1 {
		t.Errorf("%d, %+v, %+v", status, page.Consumers, problem)
	}
	if _, page, _ := getJSON[tablesPage](t, s.handler, "/tables?after=1"); len(page.Consumers) > 0 {
		t.Errorf("on the second page: %+v", page.Consumers)
	}
}
