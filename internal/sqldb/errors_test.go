package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Errors of the connection may pass, so the statement is repeated. Others need somebody to act.
func TestIsUnreachable_TellsTheConnectionFromTheDatabase(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{&net.DNSError{Err: "no such host"}, true},
		{driver.ErrBadConn, true},
		{sql.ErrConnDone, true},
		{io.EOF, true},
		{io.ErrUnexpectedEOF, true},
		{context.DeadlineExceeded, true},
		{context.Canceled, true},
		{sqldb.ErrNoConnection, false}, // it wraps why
		{sql.ErrTxDone, false},
		{sql.ErrNoRows, false},
		{testkit.SQLState("42501"), false},
		{errors.New("no such table: WORKER_NODE"), false},
	} {
		if got := sqldb.IsUnreachable(tt.err); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
		if got := sqldb.IsUnreachable(fmt.Errorf("workernode: %w", tt.err)); tt.err != nil && got != tt.want {
			t.Errorf("%v, wrapped: %t", tt.err, got)
		}
	}
}

// database/sql exports no error for a pool that was closed, so its text must stay as it is.
func TestIsPoolClosed_KnowsTheErrorOfDatabaseSQL(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	d := open(t, db)
	pool, err := db.DB()
	must(t, err)
	must(t, d.PoolError())
	must(t, pool.Close())
	_, err = d.Exec(t.Context(), `CREATE TABLE "T" ("A" INT)`)
	if err == nil || !sqldb.IsPoolClosed(err) {
		t.Errorf("%v", err)
	}
	if err := d.PoolError(); err == nil || !sqldb.IsPoolClosed(err) {
		t.Errorf("PoolError: %v", err)
	}
	for _, err := range []error{driver.ErrBadConn, sql.ErrConnDone, context.Canceled, io.EOF} {
		if sqldb.IsPoolClosed(err) {
			t.Errorf("%v", err)
		}
	}
}

// Vitess reports only the table. Its user does not know that the tables of the plugin need a keyspace without shards.
func TestHintOfShards_NamesWithRegistry(t *testing.T) {
	t.Parallel()
	for text, hint := range map[string]bool{
		"Error 1105 (HY000): table WORKER_REGISTRY not found":                                   true,
		"Error 1146 (42S02): VT05004: table 'WORKER_REGISTRY' does not exist":                   true,
		"Error 1146 (42S02): Table 'shop.WORKER_REGISTRY' doesn't exist":                        false,
		`ERROR: relation "WORKER_REGISTRY" does not exist (SQLSTATE 42P01)`:                     false,
		"workernode: read WORKER_REGISTRY: Error 1105 (HY000): table WORKER_REGISTRY not found": true,
	} {
		cause := errors.New(text)
		got := sqldb.HintOfShards(cause)
		if strings.Contains(got.Error(), "WithRegistry") != hint || !errors.Is(got, cause) {
			t.Errorf("%v", got)
		}
	}
	if err := sqldb.HintOfShards(nil); err != nil {
		t.Error(err)
	}
}
