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
	shows(t, s.handler, http.StatusOK, "/tables", " 1s until ", " installed –")
	status, page, problem := getJSON[tablesPage](t, s.handler, "/tables")
	if status != http.StatusOK || len(page.Followed) != 1 || page.Followed[0].Table != "accounts" || page.Followed[0].Mark != mark {
		t.Errorf("%d, %+v, %+v", status, page.Followed, problem)
	}
	var trigger string
	testkit.Must(t, s.db.Raw("SELECT name FROM sqlite_schema WHERE type = 'trigger'").Scan(&trigger).Error)
	testkit.Must(t, s.db.Exec("DROP TRIGGER "+trigger).Error)
	shows(t, s.handler, http.StatusOK, "/tables", " gone –", "its trigger is gone")
	if _, page, _ := getJSON[tablesPage](t, s.handler, "/tables?after=1"); len(page.Followed) > 0 {
		t.Errorf("on the second page: %+v", page.Followed)
	}
}
