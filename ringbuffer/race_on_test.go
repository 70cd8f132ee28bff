//go:build race

package ringbuffer_test

// raceEnabled makes the hammers smaller, for each claim costs far more.
const raceEnabled = true
