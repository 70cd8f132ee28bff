//go:build !linux

package main

// preempted returns 0, because only Linux counts preemptions of each thread.
func preempted() int64 { return 0 }
