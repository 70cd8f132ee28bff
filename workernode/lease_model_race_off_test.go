//go:build !race

package workernode

const modelRacing = false
