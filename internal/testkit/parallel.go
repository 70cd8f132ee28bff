package testkit

import (
	"flag"
	"fmt"
)

// ManyAtOnce lets at least six tests of a package run at once, on any number of processors. It is for TestMain of
// packages whose tests wait most of their time. A -parallel in the command line stays.
func ManyAtOnce() {
	flag.Parse()
	const name = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if n := flag.Lookup(name).Value.(flag.Getter).Get().(int); n < 6 && !given {
		if err := flag.Set(name, fmt.Sprint(6)); err != nil {
			panic(err)
		}
	}
}
