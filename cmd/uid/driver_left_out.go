//go:build no_mysql || no_postgres || no_sqlite

package main

import "fmt"

// errLeftOut reports a driver that was not built in.
func errLeftOut(tag string) error {
	return fmt.Errorf("this uid was built with the tag %s, without the driver of the database", tag)
}
