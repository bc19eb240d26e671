package runtime

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
)

// steps writes what a guarded call does to the debug log of its request. A nil
// one writes nothing, at the price of a comparison for each step.
type steps struct {
	logger     *slog.Logger
	base       context.Context // of what the function does
	id         string          // of the request
	dependency string
}

// stepsOf returns nil unless somebody reads the debug log.
func stepsOf(x *exchange, d *dependency) *steps {
	f := x.inst.function
	if !f.logger.Enabled(f.base, slog.LevelDebug) {
		return nil
	}
	return &steps{f.logger, f.base, x.id, d.cfg.Name}
}

func (s *steps) log(message string, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("request_id", s.id), slog.String("dependency", s.dependency)}, attrs...)
	s.logger.LogAttrs(s.base, slog.LevelDebug, message, attrs...)
}

func (s *steps) admitted(a objects.Admission, err error) {
	switch {
	case s == nil:
	case err != nil:
		s.log("the call is not admitted", slog.String("error", err.Error()))
	default:
		s.log("the call is admitted", slog.Bool("probe", a.Probe()), slog.Uint64("generation", a.Generation()))
	}
}

// attempt tells of an attempt, and of what it is made under.
func (s *steps) attempt(number int, fence string, keyed bool) {
	if s == nil {
		return
	}
	attrs := []slog.Attr{slog.Int("attempt", number), slog.Bool("keyed", keyed)}
	if fence != "" {
		attrs = append(attrs, slog.String("fence", fence))
	}
	s.log("the attempt begins", attrs...)
}

func (s *steps) judged(r attempt.Result, o objects.Outcome) {
	if s == nil {
		return
	}
	result := slog.Any("error", r.Err)
	if r.Err == nil {
		result = slog.String("status", strconv.Itoa(r.Response.StatusCode))
	}
	s.log("the attempt has ended", result, slog.Duration("took", r.Took), slog.String("outcome", outcomeName(o)))
}

func outcomeName(o objects.Outcome) string {
	switch o {
	case objects.Success:
		return "success"
	case objects.Failure:
		return "failure"
	case objects.Canceled:
		return "canceled"
	case objects.Excluded:
		return "excluded"
	}
	return strconv.Itoa(int(o))
}

func (s *steps) reported(err error) {
	switch {
	case s == nil:
	case err != nil:
		s.log("the outcome was not taken", slog.String("error", err.Error()))
	default:
		s.log("the outcome is reported")
	}
}

func (s *steps) decided(number int, d attempt.Decision) {
	switch {
	case s == nil:
	case d.Retry:
		s.log("another attempt follows", slog.Int("after", number), slog.Duration("in", d.Delay), slog.String("reason", d.Reason))
	default:
		s.log("the result stands", slog.Int("after", number), slog.String("reason", d.Reason))
	}
}
