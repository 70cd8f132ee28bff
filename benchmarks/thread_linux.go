package main

import "syscall"

// preempted returns how often the kernel has taken the CPU from the calling thread.
func preempted() int64 {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return int64(u.Nivcsw)
}
