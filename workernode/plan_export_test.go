package workernode

// Racing tells whether the race detector is on, which makes each step cost some ten
// times as much.
const Racing = modelRacing
