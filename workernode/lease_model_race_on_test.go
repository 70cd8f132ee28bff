//go:build race

package workernode

// modelRacing makes the models smaller, for each state costs some ten times as much.
const modelRacing = true
