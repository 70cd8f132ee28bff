package follow

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tooLate begins the message of the triggers. The SQLSTATE is UID01 on PostgreSQL, and 45U01 on MySQL and MariaDB.
const tooLate = "uid_follow: too late"

var tooLateAt = regexp.MustCompile(tooLate + `.* at (\d{13})\b`)

// mysqlError matches the beginning of an error of MySQL and MariaDB. Only the first match in a text counts, because
// a later one may be in a value of a user that the message quotes.
var mysqlError = regexp.MustCompile(`Error \d+ \(\w{5}\): `)

const mysqlTooLate = "Error 1644 (45U01): " + tooLate

// TooLate reports whether a trigger has refused a row, and returns the database's clock at that time. On SQLite it
// returns the present time.
func TooLate(err error) (clock time.Time, ok bool) {
	text := err.Error()
	if !strings.Contains(text, tooLate) {
		return clock, false
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() != "UID01" {
		return clock, false // the text is a part of another message
	}
	if found := mysqlError.FindStringIndex(text); found != nil && !strings.HasPrefix(text[found[0]:], mysqlTooLate) {
		return clock, false
	}
	if found := tooLateAt.FindStringSubmatch(text); found != nil {
		if ms, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			return time.UnixMilli(ms), true
		}
	}
	return time.Now(), true
}
