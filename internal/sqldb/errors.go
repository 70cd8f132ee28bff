package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"gorm.io/gorm"
)

// IsDuplicate reports whether err reports a duplicate key, if the dialector translates errors.
func (d *DB) IsDuplicate(err error) bool {
	if t, ok := d.gorm.Dialector.(gorm.ErrorTranslator); ok {
		err = t.Translate(err)
	}
	return errors.Is(err, gorm.ErrDuplicatedKey)
}

// IsTransient reports whether a retry may succeed, because err is a conflict with another process, such as a
// deadlock or a lock wait timeout, or because the server cannot commit now.
func IsTransient(err error) bool {
	if err == nil {
		return false
	}
	var state interface{ SQLState() string } // PostgreSQL
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "40001", "40P01", "55P03":
			return true
		}
	}
	var code interface{ Code() int } // SQLite: the low byte is the primary code
	if errors.As(err, &code) && (code.Code()&0xff == sqliteBusy || code.Code()&0xff == sqliteLocked) {
		return true
	}
	return conflict.MatchString(err.Error())
}

// IsReadOnly reports whether err means that the server or the transaction refuses to write, as on a replica.
func IsReadOnly(err error) bool {
	var state interface{ SQLState() string } // PostgreSQL
	if errors.As(err, &state) && state.SQLState() == "25006" {
		return true
	}
	return err != nil && readOnly.MatchString(err.Error())
}

// readOnly matches such errors of MySQL. Error 1290 may be about other options than read-only.
var readOnly = regexp.MustCompile(`Error 1290 .*read-only|Error (1792|1836) `)

// IsUnreachable reports whether err concerns the connection instead of the contents of the database.
func IsUnreachable(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// HintOfShards adds advice to the error of Vitess about a table that a sharded keyspace does not have.
func HintOfShards(err error) error {
	if err == nil || !unsharded.MatchString(err.Error()) {
		return err
	}
	return fmt.Errorf("%w; if this is a sharded keyspace of Vitess, create the tables of the plugin in an unsharded one, and pass "+
		"its handle to WithRegistry (docs/several-databases.md)", err)
}

// unsharded matches the error with which vtgate refuses a table that is not in the schema of a keyspace.
var unsharded = regexp.MustCompile(`(?i)table '?"?[a-z_.]+"?'? not found|VT05004`)

// conflict matches MySQL's lock waits, deadlocks, failed certification at COMMIT, and cluster nodes without quorum.
// It also matches MariaDB's "record has changed since last read", SQLite's lock, TiDB's write conflict 9007, and
// 8002, 8005, 8022 and 8028, after which TiDB's documentation tells applications to try again
// (docs.pingcap.com/tidb/stable/error-codes).
var conflict = regexp.MustCompile(`Error (1020|1047|1180|1205|1213|3100|3101|8002|8005|8022|8028|9007)\b|database (table )?is locked`)

const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// IsNoDatabase reports whether err means that the connection to a MySQL server has not selected a database.
func IsNoDatabase(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Error 1046 ")
}

// IsPoolClosed reports whether err means that the sql.DB was closed, for which database/sql exports no error.
func IsPoolClosed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "sql: database is closed")
}
