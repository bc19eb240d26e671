// Package objects coordinates a fleet of hosts through small records: one object
// per dependency with the fleet's circuit breaker, and leases with fencing tokens
// over state.
package objects
