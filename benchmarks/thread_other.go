//go:build !linux

package main

// preempted returns 0: only Linux counts for each thread.
func preempted() int64 { return 0 }
