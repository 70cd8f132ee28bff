package workernode_test

import (
	"context"
	"sync"
	"time"

	"gorm.io/gorm/logger"
)

// countingLogger counts statements.
type countingLogger struct {
	logger.Interface
	mu sync.Mutex
	n  int
}

// Trace implements [logger.Interface].
func (l *countingLogger) Trace(context.Context, time.Time, func() (string, int64), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
}
