package testkit

import (
	"flag"
	"fmt"
	"runtime"
)

// ManyAtOnce lets at least eight tests of a package run at once, on any number of processors. It is for TestMain of
// packages whose tests wait most of their time. A -parallel in the command line is read later, so it counts.
func ManyAtOnce() {
	if err := flag.Set("test.parallel", fmt.Sprint(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}
