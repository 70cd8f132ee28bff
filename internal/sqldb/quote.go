package sqldb

import (
	"fmt"
	"strings"
)

// DollarQuoted puts a text into dollar quotes of PostgreSQL that it does not contain, because names may contain any.
func DollarQuoted(text string) string {
	tag := "$$"
	for n := 1; strings.Contains(text, tag); n++ {
		tag = fmt.Sprintf("$uid%d$", n)
	}
	return tag + text + tag
}
