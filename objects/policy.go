package objects

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// A Policy says when a dependency's breaker opens and for how long. Zero values
// mean the defaults.
type Policy struct {
	// Mode says what opens the breaker. The fields of the other mode must be zero.
	// Default ModeRun.
	Mode Mode
	// FailureThreshold failures in a row, counted over the fleet, open the
	// breaker. Default 5.
	FailureThreshold int
	// FailureRate is the share of calls whose failure opens the breaker in
	// ModeRate, above 0 and at most 1. Default 0.5.
	FailureRate float64
	// Window is how far back ModeRate looks, at least 1 s. Default 10 s.
	Window time.Duration
	// MinCalls is how many calls of the fleet a window must hold for ModeRate to
	// decide anything. Default 20.
	MinCalls int
	// SlowCall is how long a call takes, from Admit to Report, that counts as slow
	// in ModeRate. Default 0: none does.
	SlowCall time.Duration
	// SlowCallRate is the share of slow calls that opens the breaker in ModeRate.
	// Default 1 if there is a SlowCall: all of them.
	SlowCallRate float64
	// ResetAfter is how long the breaker stays open after it opened, before one
	// probe may go out; up to a quarter more is added at random. It doubles with
	// every probe that fails. Default 30 s.
	ResetAfter time.Duration
	// MaxResetAfter bounds the doubling. Default 5 min, or ResetAfter if that is
	// longer.
	MaxResetAfter time.Duration
	// Timeout is the longest that one call to the dependency takes. Default 10 s.
	Timeout time.Duration
	// ProbeTTL is how long the fleet waits for a probe's report before another
	// may go out. It is raised to Timeout/0.8 + 1.25 s if it is shorter:
	// a probe goes out only if a call that takes Timeout ends within 0.8 of it.
	ProbeTTL time.Duration
	// OnStoreLoss says what an open breaker does, past its time, while the store
	// has not answered for 10 s. Default StoreLossLocal.
	OnStoreLoss StoreLoss
	// MaxInFlight bounds the calls that this host has under way. Zero means no
	// bound.
	MaxInFlight int
	// Ramp is how long, after the breaker closed, the share of calls that go out
	// grows from none to all, so that healing does not become the next overload.
	// Default 0: all at once.
	Ramp time.Duration
	// Probe makes a call that decides the breaker's state, so that recovery need
	// not wait for traffic, nor risk any. Every host tries at the end of the
	// cooldown; one of them gets to. Its context ends after Timeout. Nil means
	// that the next caller is the probe.
	Probe func(context.Context) Outcome
}

// A Mode says what opens a breaker.
type Mode int

// What opens a breaker.
const (
	// ModeRun opens it after failures in a row.
	ModeRun Mode = iota
	// ModeRate opens it when too large a share of the fleet's calls in a sliding
	// window have failed, or were slow. While no call is bad, hosts count by
	// themselves; after a bad one all of them report their windows, and the sum
	// decides. What a healthy host has counted before it learns of a bad call
	// elsewhere is in the sum only then, so that a host whose own calls all fail
	// may open the breaker before the others are heard.
	ModeRate
)

// A StoreLoss says what an open breaker does without the store.
type StoreLoss int

// What an open breaker does without the store.
const (
	// StoreLossLocal lets each host send one probe now and then, with doubling
	// pauses, and close its own copy of the breaker until the record can be read
	// again.
	StoreLossLocal StoreLoss = iota
	// StoreLossHold keeps deferring.
	StoreLossHold
)

// maxPolicyTime bounds the times of a policy, so that no sum of them overflows.
const maxPolicyTime = 24 * time.Hour

// resolve returns the policy with its defaults, or an error that unwraps to
// abi.Invalid.
func (p Policy) resolve() (Policy, error) {
	if p.FailureThreshold < 0 {
		return p, fmt.Errorf("objects: failure threshold %d is below zero: %w", p.FailureThreshold, abi.Invalid)
	}
	if p.MaxInFlight < 0 || p.OnStoreLoss < StoreLossLocal || p.OnStoreLoss > StoreLossHold {
		return p, invalid("max in flight %d, on store loss %d", p.MaxInFlight, p.OnStoreLoss)
	}
	for name, d := range map[string]time.Duration{
		"reset after": p.ResetAfter, "max reset after": p.MaxResetAfter, "timeout": p.Timeout, "probe ttl": p.ProbeTTL, "ramp": p.Ramp,
		"window": p.Window, "slow call": p.SlowCall,
	} {
		if d < 0 || d > maxPolicyTime {
			return p, fmt.Errorf("objects: %s %v is not between 0 and %v: %w", name, d, maxPolicyTime, abi.Invalid)
		}
	}
	if err := p.resolveMode(); err != nil {
		return p, err
	}
	p.ResetAfter = cmp.Or(p.ResetAfter, 30*time.Second)
	p.MaxResetAfter = cmp.Or(p.MaxResetAfter, max(5*time.Minute, p.ResetAfter))
	p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
	p.ProbeTTL = max(p.ProbeTTL, (p.Timeout+storePatience)*10/8)
	if p.MaxResetAfter < p.ResetAfter {
		return p, fmt.Errorf("objects: max reset after %v is below reset after %v: %w", p.MaxResetAfter, p.ResetAfter, abi.Invalid)
	}
	return p, nil
}

// resolveMode fills in the defaults of the mode.
func (p *Policy) resolveMode() error {
	rates := p.FailureRate != 0 || p.Window != 0 || p.MinCalls != 0 || p.SlowCall != 0 || p.SlowCallRate != 0
	switch {
	case p.Mode == ModeRun && rates:
		return invalid("a failure rate, window, minimum of calls or slow call is for ModeRate")
	case p.Mode == ModeRun:
		p.FailureThreshold = cmp.Or(p.FailureThreshold, 5)
		return nil
	case p.Mode != ModeRate:
		return invalid("there is no mode %d", p.Mode)
	case p.FailureThreshold != 0:
		return invalid("a failure threshold is for ModeRun")
	case p.SlowCallRate != 0 && p.SlowCall == 0:
		return invalid("a slow call rate needs a slow call")
	}
	p.FailureRate = cmp.Or(p.FailureRate, 0.5)
	p.Window = cmp.Or(p.Window, 10*time.Second)
	p.MinCalls = cmp.Or(p.MinCalls, 20)
	if p.SlowCall != 0 {
		p.SlowCallRate = cmp.Or(p.SlowCallRate, 1)
	}
	if !isShare(p.FailureRate) || p.SlowCall != 0 && !isShare(p.SlowCallRate) || p.MinCalls < 0 || p.Window < time.Second {
		return invalid("failure rate %v, slow call rate %v, minimum of %d calls, window %v", p.FailureRate, p.SlowCallRate, p.MinCalls, p.Window)
	}
	return nil
}

func isShare(f float64) bool { return f > 0 && f <= 1 }

// record returns the part that transitions need.
func (p Policy) record() record.Policy {
	return record.Policy{
		FailureThreshold: p.FailureThreshold,
		ResetAfter:       record.Span(p.ResetAfter),
		MaxResetAfter:    record.Span(p.MaxResetAfter),
		Rate: record.Rate{
			Window: record.Span(p.Window), MinCalls: p.MinCalls, Failures: p.FailureRate, Slow: p.SlowCallRate,
		},
	}
}
