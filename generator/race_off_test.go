//go:build !race

package generator_test

const raceEnabled = false
