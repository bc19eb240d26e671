package kvbucket

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// serverLog passes an embedded server's log on. It remembers the first fatal
// message, after which the server expects the process to end; the caller ends only
// the server.
type serverLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

const serverMessage = "embedded NATS server"

// Noticef logs the server's progress, which is of interest only when looking for a
// fault.
func (l *serverLog) Noticef(format string, args ...any) { l.Debugf(format, args...) }

// Warnf logs what an operator should look at.
func (l *serverLog) Warnf(format string, args ...any) {
	l.log.Warn(serverMessage, "detail", fmt.Sprintf(format, args...))
}

// Errorf logs a failure.
func (l *serverLog) Errorf(format string, args ...any) {
	l.log.Error(serverMessage, "detail", fmt.Sprintf(format, args...))
}

// Fatalf logs why the server cannot go on, and remembers it.
func (l *serverLog) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error(serverMessage, "detail", text)
}

// Debugf logs a detail.
func (l *serverLog) Debugf(format string, args ...any) {
	l.log.Debug(serverMessage, "detail", fmt.Sprintf(format, args...))
}

// Tracef logs a detail.
func (l *serverLog) Tracef(format string, args ...any) { l.Debugf(format, args...) }
