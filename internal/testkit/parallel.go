package testkit

import (
	"flag"
	"fmt"
	"runtime"
)

// ManyAtOnce lets at least eight tests of a package run at once, on any number of processors. Call it in TestMain of
// packages whose tests spend most of their time waiting. The flag -parallel takes precedence, because the command line
// is parsed after this call.
func ManyAtOnce() {
	if err := flag.Set("test.parallel", fmt.Sprint(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}
