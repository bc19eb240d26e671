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

func (l *serverLog) Warnf(format string, args ...any) {
	l.log.Warn(serverMessage, "detail", fmt.Sprintf(format, args...))
}

func (l *serverLog) Errorf(format string, args ...any) {
	l.log.Error(serverMessage, "detail", fmt.Sprintf(format, args...))
}

func (l *serverLog) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error(serverMessage, "detail", text)
}

func (l *serverLog) Debugf(format string, args ...any) {
	l.log.Debug(serverMessage, "detail", fmt.Sprintf(format, args...))
}

func (l *serverLog) Tracef(format string, args ...any) { l.Debugf(format, args...) }
