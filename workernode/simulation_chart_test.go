package workernode

func (r *simRun) chart() string { return "" }
