//go:build race

package testkit

// Race reports whether the race detector is on. With it, allocations differ, and everything takes far longer.
const Race = true
