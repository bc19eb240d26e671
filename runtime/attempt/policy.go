package attempt

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A Policy says how often and when a call is tried again. Zero values mean the
// defaults.
type Policy struct {
	Attempts  int           // of one call, the first included; 3, and 1 for no retries
	BaseDelay time.Duration // the longest pause before the first retry, doubling with each; 50 ms
	MaxDelay  time.Duration // bounds the doubling; 500 ms, or BaseDelay if that is longer
	Budget    float64       // retries as a share of calls, above 0 and at most 1; 0.2
}

const (
	maxAttempts = 10
	maxDelay    = time.Minute
)

// Resolve returns the policy with its defaults. The error unwraps to abi.Invalid.
func (p Policy) Resolve() (Policy, error) {
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.BaseDelay = cmp.Or(p.BaseDelay, 50*time.Millisecond)
	p.MaxDelay = cmp.Or(p.MaxDelay, max(500*time.Millisecond, p.BaseDelay))
	p.Budget = cmp.Or(p.Budget, 0.2)
	switch {
	case p.Attempts < 1 || p.Attempts > maxAttempts:
		return p, fmt.Errorf("attempts %d is not between 1 and %d: %w", p.Attempts, maxAttempts, abi.Invalid)
	case p.BaseDelay < 0 || p.MaxDelay < p.BaseDelay || p.MaxDelay > maxDelay:
		return p, fmt.Errorf("delays %v and %v do not grow from 0 to %v: %w", p.BaseDelay, p.MaxDelay, maxDelay, abi.Invalid)
	case !(p.Budget > 0 && p.Budget <= 1):
		return p, fmt.Errorf("budget %v is not above 0 and at most 1: %w", p.Budget, abi.Invalid)
	}
	return p, nil
}

// The reasons of decisions. Those of retries are labels of a metric.
const (
	ReasonConnect = "connect" // no connection came about
	ReasonUnsent  = "unsent"  // it broke before a byte was written
	ReasonReset   = "reset"   // it broke later
	// The status of an answer is a reason too, such as "503".

	ReasonStands   = "stands"   // the result is none that is tried again
	ReasonEffect   = "effect"   // another attempt could have the effect twice
	ReasonBody     = "body"     // the body cannot be sent again
	ReasonAttempts = "attempts" // all have been made
	ReasonDeadline = "deadline" // another could not end in time
	ReasonBudget   = "budget"   // the dependency's retries are used up
	ReasonProbe    = "probe"    // a probe is made once
	ReasonOpen     = "open"     // the breaker would refuse it
)

// A Situation is what a decision rests on.
type Situation struct {
	Result     Result
	Number     int           // of the attempt, from 1
	Idempotent bool          // the call may have its effect twice
	Once       bool          // its body cannot be sent again
	Open       bool          // the breaker would refuse another attempt
	Timeout    time.Duration // of one attempt
	Left       time.Duration // until the deadline
	Now        time.Time     // the wall clock
	Jitter     float64       // from [0, 1)
}

// A Decision says whether another attempt follows after a pause, and why or why
// not.
type Decision struct {
	Retry  bool
	Delay  time.Duration
	Reason string
}

// Decide decides about another attempt. The budget is not its concern.
func (p Policy) Decide(s Situation) Decision {
	reason, unsafe := s.Result.retryable()
	switch {
	case reason == "":
		return Decision{Reason: ReasonStands}
	case s.Result.Probe:
		return Decision{Reason: ReasonProbe}
	case s.Open:
		return Decision{Reason: ReasonOpen}
	case unsafe && !s.Idempotent:
		return Decision{Reason: ReasonEffect}
	case s.Once:
		return Decision{Reason: ReasonBody}
	case s.Number >= p.Attempts:
		return Decision{Reason: ReasonAttempts}
	}
	delay := s.Result.retryAfter(s.Now) + p.pause(s.Number, s.Jitter)
	if needed := min(s.Timeout, max(s.Result.Took, s.Timeout/2)); delay > s.Left-needed {
		return Decision{Reason: ReasonDeadline}
	}
	return Decision{Retry: true, Delay: delay, Reason: reason}
}

// pause returns the time that passes after an attempt.
func (p Policy) pause(number int, jitter float64) time.Duration {
	longest := p.BaseDelay
	for range number - 1 {
		longest = min(2*longest, p.MaxDelay)
	}
	return time.Duration(jitter * float64(longest))
}

// Idempotent reports whether a method may be repeated with the same intended
// effect (RFC 9110, section 9.2.2).
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// CheckKeyHeader says why a field cannot carry an idempotency key: it is not a
// token, or already means something to the host or to HTTP.
func CheckKeyHeader(name string) error {
	switch canonical := http.CanonicalHeaderKey(name); {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !tokenChar(c) }):
		return fmt.Errorf("a field name consists of letters, digits and \"-\": %w", abi.Invalid)
	case strings.HasPrefix(canonical, "Edgehost-"), strings.HasPrefix(canonical, "Proxy-"), slices.Contains(taken, canonical):
		return fmt.Errorf("the field has a meaning of its own: %w", abi.Invalid)
	}
	return nil
}

// tokenChar reports whether c may be in a token (RFC 9110, section 5.6.2).
func tokenChar(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// taken are fields that a request has for other reasons.
var taken = []string{
	"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}
