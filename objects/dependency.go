package objects

import (
	"context"
	"time"
)

// A Policy says when a dependency's breaker opens and for how long. Zero values
// mean the defaults.
type Policy struct {
	// FailureThreshold failures in a row, counted over the fleet, open the
	// breaker. Default 5.
	FailureThreshold int
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
	// may go out. It is raised to Timeout/0.8 + 1 s if it is shorter.
	ProbeTTL time.Duration
}

// An Outcome is what a call to a dependency came to.
type Outcome int

// The outcomes, with the numbers of the guest ABI.
const (
	Success  Outcome = iota // the dependency works
	Failure                 // it does not
	Canceled                // the call was given up before its end: no verdict
	Excluded                // it ended in an error that says nothing about the dependency: no verdict
)

// A State is a breaker's state.
type State string

// The states of a breaker.
const (
	StateClosed   State = "closed"    // calls go through
	StateOpen     State = "open"      // no call goes through until the cooldown ends
	StateHalfOpen State = "half_open" // one probe may go through
)

// A Dependency is the object that guards one dependency: the fleet's breaker for
// it. Its methods may be called from any number of goroutines.
type Dependency struct{}

// Admit asks whether a call may go out. Every admission must be reported exactly
// once. The error is a *Refusal: breaker_open while the breaker cools down;
// deferred while somebody else probes, or while this host's own calls fail in a
// row. While the breaker is closed and nothing failed lately, Admit reads one
// value in memory: it takes no lock, allocates nothing and sends nothing. The
// store's absence never refuses a call to a dependency that was not known to
// fail.
func (d *Dependency) Admit(ctx context.Context) (Admission, error) { return Admission{}, errUnbuilt }

// View returns the breaker as this host knows it, which may be behind.
func (d *Dependency) View() View { return View{} }

// A View is what a host knows of a breaker.
type View struct {
	State      State
	Generation uint64        // grows with every change of State
	RetryAfter time.Duration // until the cooldown or the probe's lease ends; zero when closed
	Guarded    bool          // this host defers calls because its own failed in a row
	Known      bool          // the record has been read; else State is assumed
}

// An Admission lets one call go out. It is a value: keep it with the call.
type Admission struct {
	dependency        *Dependency
	generation, fence uint64
}

// Probe reports whether this call decides the breaker's state.
func (a Admission) Probe() bool { return a.fence != 0 }

// Generation returns the breaker's generation at the time of the admission.
func (a Admission) Generation() uint64 { return a.generation }

// Fence returns the probe's fence, zero for other calls.
func (a Admission) Fence() uint64 { return a.fence }

// Report says what the call came to. A probe's report, and the failure that
// opens the breaker, return after the store has committed the change, or when ctx
// ends; the change may be committed later then. Every other report returns at
// once, and while nothing failed lately it sends nothing. Errors: abi.Fenced if
// the probe is no longer the accepted one, so that its outcome was dropped; a
// *Refusal of unavailable if the store does not answer.
func (a Admission) Report(ctx context.Context, o Outcome) error { return errUnbuilt }
