package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"

	"gorm.io/gorm"
)

// IsDuplicate reports whether err reports an existing key. It is false for a dialector that cannot tell.
func (d *DB) IsDuplicate(err error) bool {
	if t, ok := d.gorm.Dialector.(gorm.ErrorTranslator); ok {
		err = t.Translate(err)
	}
	return errors.Is(err, gorm.ErrDuplicatedKey)
}

// IsTransient reports whether err reports a conflict with another process that a later
// attempt may not meet: a deadlock, a lock that was waited for too long, a
// serialization failure. The engines' codes are in their messages or behind
// methods, so no driver is needed to read them.
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

// IsUnreachable reports whether err is about the connection to the database, and not about
// what is in it.
func IsUnreachable(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// conflict matches errors of conflicts with other transactions. On MySQL these are lock wait, deadlock, certification
// at COMMIT, and a cluster node that has no quorum or does not take writes (any more). It also matches TiDB's write
// conflict, MariaDB's "record has changed since last read", and SQLite's lock.
var conflict = regexp.MustCompile(`Error (1020|1047|1180|1205|1213|1290|3100|3101|9007)\b|database (table )?is locked`)

const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// IsNoDatabase reports whether err says that the connection has no current database, as one to a MySQL server can be.
func IsNoDatabase(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Error 1046 ")
}

// IsPoolClosed reports whether err says that the sql.DB was closed, for which database/sql exports no error.
func IsPoolClosed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "sql: database is closed")
}
