package ringbuffer_test

import (
	"fmt"

	"github.com/uidplugin/uidplugin/ringbuffer"
)

// Runs of ids leave the ring in the order in which they came.
func ExampleStored() {
	ring := ringbuffer.NewStored(4)
	ring.Put(100, 3)
	ring.Put(500, 2)

	first, n := ring.Take(2)
	fmt.Println(first, n)
	first, n = ring.Take(2) // the rest of the run
	fmt.Println(first, n)
	fmt.Println(ring.Len(), ring.Free())
	// Output:
	// 100 2
	// 102 1
	// 2 3
}
