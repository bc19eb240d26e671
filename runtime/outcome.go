package runtime

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// An outcome is how a request ended, for its client, the log and the metrics.
type outcome struct {
	problem    problem // problems[0] if the guest answered
	slot       int     // of its counter: -code for a code of the ABI
	status     int     // of the guest's answer
	retryAfter time.Duration
	err        error // for the log only
	fuel       int64 // that the guest has used so far
	brokenOff  bool  // a part of the answer was sent: the connection must not look complete
}

// Slots of the problems that are no code of the ABI.
const (
	slotFunction = len(problems) + iota
	slotRoute
	slotMethod
	slots
)

// failed returns the outcome of a code.
func failed(code abi.Code, retryAfter time.Duration, err error) outcome {
	if !code.Valid() {
		code = abi.Internal
	}
	return outcome{problem: problems[-code], slot: -int(code), retryAfter: retryAfter, err: err}
}

// canceled returns the outcome of a request whose client has gone. What is left of
// the connection is broken off: a client that only stopped sending must not take
// the missing answer for an empty one.
func canceled(err error) outcome {
	o := failed(abi.Canceled, 0, err)
	o.brokenOff = true
	return o
}

// faulted returns the outcome of a guest that failed.
func faulted(err error) outcome {
	return outcome{problem: problemFunction, slot: slotFunction, err: err}
}

// write answers a client that has no answer yet.
func (o outcome) write(w http.ResponseWriter, id string) {
	o.problem.write(w, id, o.retryAfter)
}

func (o outcome) statusCode() int {
	if o.status != 0 {
		return o.status
	}
	return o.problem.status
}

// level is that of the request's line in the log.
func (o outcome) level() slog.Level {
	switch {
	case errors.Is(o.err, abi.Internal):
		return slog.LevelError
	case o.slot == slotFunction || o.slot == -int(abi.DeadlineExceeded):
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// log writes the request's line.
func (a *arrival) log(ctx context.Context, took time.Duration) {
	o := &a.outcome
	logger, level := a.engine.logger, o.level()
	if a.function != nil {
		logger = a.function.logger
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 7)
	attrs = append(attrs,
		slog.String("request_id", a.id),
		slog.String("code", o.problem.code),
		slog.Int("status", o.statusCode()),
		slog.Duration("duration", took),
		slog.Int64("fuel", o.fuel))
	if o.err != nil {
		attrs = append(attrs, slog.String("error", o.err.Error()))
	}
	if o.brokenOff {
		attrs = append(attrs, slog.Bool("broken_off", true))
	}
	logger.LogAttrs(ctx, level, "request", attrs...)
}
