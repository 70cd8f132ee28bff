package testkit_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestSQLite_OpensOneFileTwice(t *testing.T) {
	t.Parallel()

	path := testkit.SQLitePath(t)
	a, b := testkit.SQLite{Path: path}.Open(t), testkit.SQLite{Path: path, Pool: 1}.Open(t)
	testkit.Must(t, a.Exec("CREATE TABLE t (id INT)").Error)
	testkit.Must(t, b.Exec("INSERT INTO t VALUES (1)").Error)
	pool, err := b.DB()
	testkit.Must(t, err)
	if n := pool.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("a pool of %d, want 1", n)
	}
	if err := (testkit.SQLite{}).Open(t).Exec("INSERT INTO t VALUES (1)").Error; err == nil {
		t.Error("a handle without a path has the table of another")
	}
}
