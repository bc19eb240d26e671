// Package attempt judges the attempts of a call to a dependency: what one says
// about the dependency, and whether another may follow.
//
// # What is tried again
//
// Only what is certain to have had no effect, or may have it twice:
//
//   - no connection came about, or it broke before a byte was written to it
//   - the answer is 429 or 503, by which a dependency says that it did nothing
//   - of an idempotent method (RFC 9110, section 9.2.2), or with an idempotency
//     key, also an answer of 502 or 504, and a connection that broke later
//
// Everything else stands: every other answer, a timeout, a refusal by the breaker
// or by the host, a lost lease. So does what cannot be sent again, because its
// body was streamed.
//
// # When
//
// The pause before attempt n+1 is random, between nothing and BaseDelay·2ⁿ⁻¹ or
// MaxDelay ("full jitter"). A Retry-After of the answer is a floor under it. An
// attempt that could not end before the deadline is not made: it needs the time
// that the one before it took, and at least half of an attempt's timeout.
//
// # How many
//
// At most Attempts for a call, and a share of all calls: retries count from the
// moment they are queued, over a sliding window, so that a thousand calls that
// fail at once do not queue a thousand retries before the first has left.
package attempt
