//go:build !race

package testkit

// Race reports whether the race detector is on. Allocations then differ and everything takes far longer.
const Race = false
