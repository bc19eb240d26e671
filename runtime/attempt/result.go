package attempt

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/egress"
)

// A Result is what came of one attempt.
type Result struct {
	Response *http.Response // nil without an answer
	Err      error          // why there is none, as package egress tells it
	Took     time.Duration  // until the head of the answer, or the error
	Probe    bool           // it decides about the breaker, and is made once
}

// Outcome says what the attempt tells about the dependency, which had timeout to
// answer. An attempt that its caller cut off tells nothing, unless the dependency
// had a fair chance to answer: half of that time.
func (r Result) Outcome(timeout time.Duration, excluded Exclusions) objects.Outcome {
	if excluded.match(r) {
		return objects.Excluded
	}
	if r.Err == nil {
		if s := r.Response.StatusCode; s == http.StatusTooManyRequests || s >= http.StatusInternalServerError {
			return objects.Failure
		}
		return objects.Success
	}
	switch r.kind() {
	case egress.Invalid, egress.Denied:
		return objects.Excluded
	case egress.Canceled:
		return objects.Canceled
	case egress.Timeout:
		if r.Took < timeout/2 {
			return objects.Canceled
		}
	case egress.Connect, egress.BeforeWrite, egress.AfterWrite:
	}
	return objects.Failure
}

// kind returns how an attempt failed; zero if it did not, or nobody knows.
func (r Result) kind() egress.Kind {
	if failure, ok := errors.AsType[*egress.Error](r.Err); ok {
		return failure.Kind
	}
	return 0
}

// retryable returns why the attempt may be made again, or "". It is unsafe if the
// dependency may have acted.
func (r Result) retryable() (reason string, unsafe bool) {
	if r.Err == nil {
		switch s := r.Response.StatusCode; s {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			return strconv.Itoa(s), false
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			return strconv.Itoa(s), true
		}
		return "", false
	}
	switch r.kind() {
	case egress.Connect:
		return ReasonConnect, false
	case egress.BeforeWrite:
		return ReasonUnsent, false
	case egress.AfterWrite:
		return ReasonReset, true
	case egress.Invalid, egress.Denied, egress.Timeout, egress.Canceled:
	}
	return "", false
}

// retryAfter returns how long the dependency asks to be left alone: a number of
// seconds, or a date (RFC 9110, section 10.2.3). A date is compared with that of
// the answer, if it has one, so that the two clocks need not agree.
func (r Result) retryAfter(now time.Time) time.Duration {
	if r.Response == nil {
		return 0
	}
	value := strings.TrimSpace(r.Response.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		if digits := strings.Trim(value, "0123456789"); value != "" && digits == "" {
			return time.Duration(1<<31) * time.Second // more than anybody waits
		}
		return 0
	}
	if sent, err := http.ParseTime(r.Response.Header.Get("Date")); err == nil {
		now = sent
	}
	return max(0, date.Sub(now))
}

// Exclusions are results that say nothing about a dependency.
type Exclusions []exclusion

// An exclusion is a range of statuses, or kinds of failures.
type exclusion struct {
	low, high int
	kinds     []egress.Kind
}

// ParseExclusions reads the exclusions of a manifest: statuses ("404"), their
// classes ("4xx"), and the failures "connect", "reset" and "timeout". The error
// says which entry is none of them, and unwraps to abi.Invalid.
func ParseExclusions(entries []string) (Exclusions, error) {
	all := make(Exclusions, len(entries))
	for i, entry := range entries {
		e, ok := parseExclusion(entry)
		if !ok {
			return nil, fmt.Errorf("%q is neither a status such as \"404\", nor a class such as \"4xx\", nor connect, reset or timeout: %w", entry, abi.Invalid)
		}
		all[i] = e
	}
	return all, nil
}

func parseExclusion(entry string) (e exclusion, ok bool) {
	switch entry {
	case ReasonConnect:
		return exclusion{kinds: []egress.Kind{egress.Connect}}, true
	case ReasonReset:
		return exclusion{kinds: []egress.Kind{egress.BeforeWrite, egress.AfterWrite}}, true
	case "timeout":
		return exclusion{kinds: []egress.Kind{egress.Timeout}}, true
	}
	digits, class := strings.CutSuffix(entry, "xx")
	n, err := strconv.ParseUint(digits, 10, 16)
	low, high := int(n), int(n)
	if class {
		low, high = low*100, low*100+99
	}
	return exclusion{low: low, high: high}, err == nil && low >= 200 && high <= 599
}

func (all Exclusions) match(r Result) bool {
	return slices.ContainsFunc(all, func(e exclusion) bool {
		if r.Err != nil {
			return slices.Contains(e.kinds, r.kind())
		}
		return e.low <= r.Response.StatusCode && r.Response.StatusCode <= e.high
	})
}
