//go:build race

package workernode

// modelRacing reports that the race detector is on: then a state takes some ten times as long.
const modelRacing = true
