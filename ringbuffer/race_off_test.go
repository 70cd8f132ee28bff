//go:build !race

package ringbuffer_test

const raceEnabled = false
