//go:build race

package generator_test

// raceEnabled makes the hammers smaller, for each id costs some twenty times as
// much, and leaves out the counting of allocations, for the detector allocates.
const raceEnabled = true
