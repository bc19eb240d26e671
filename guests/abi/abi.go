// Package abi is the contract between a guest and its host: the names and
// signatures of the host functions, the numbers that cross the boundary, and
// the bytes of the records that do. ABI.md says the same in words, for SDKs in
// any language, and is normative.
//
// The package imports nothing but the standard library: both sides use it.
package abi

// Module is the name of the import module that holds the host functions.
const Module = "edgehost_v1"

// Minor counts the compatible additions to version 1; the guest reads it with
// abi(0).
const Minor = 0

// Exports of a guest. Every export that begins with ReservedPrefix belongs to
// this contract; a module that exports another such name is refused.
const (
	ReservedPrefix = "edgehost_"
	ExportMemory   = "memory"
	ExportInit     = "_initialize"     // optional, () -> ()
	ExportHandle   = "edgehost_handle" // () -> i32, one of the Handle results
	ExportResume   = "edgehost_resume" // optional, () -> (), called after a snapshot was restored
)

// Results of edgehost_handle. A negative result says that the guest failed; an
// answer that it has not begun by then is replaced by the host's.
const (
	HandleDone   = 0 // finished; the instance may serve again
	HandleRetire = 1 // finished; discard the instance
)

// A Type is a WebAssembly value type in a signature.
type Type byte

// The two value types that the ABI uses.
const (
	I32 Type = 0x7f
	I64 Type = 0x7e
)

// A Function is one host function: its name in Module and its parameters. Every
// function has exactly one result, an i32: at least zero a value, below zero a
// Code.
type Function struct {
	Name   string
	Params []Type
}

// Functions returns every function of version 1, in the order of ABI.md.
// Functions that a host does not provide answer Unsupported, so a guest that
// imports them loads everywhere.
func Functions() []Function {
	return []Function{
		{"abi", []Type{I32}},
		{"error", []Type{I32, I32}},
		{"wait", []Type{I32, I32, I64}},
		{"status", []Type{I32}},
		{"log", []Type{I32, I32, I32}},
		{"config", []Type{I32, I32, I32, I32, I32}},
		{"request_head", []Type{I32, I32}},
		{"response_head", []Type{I32, I32, I32, I32}},
		{"response_fail", []Type{I32, I32, I32, I32}},
		{"read", []Type{I32, I32, I32, I32}},
		{"write", []Type{I32, I32, I32, I32}},
		{"flush", []Type{I32}},
		{"finish", []Type{I32, I32, I32}},
		{"trailers", []Type{I32, I32, I32}},
		{"close", []Type{I32}},
		{"fetch", []Type{I32, I32, I32, I32, I32, I32}},
		{"fetch_head", []Type{I32, I32, I32, I32}},
		{"admit", []Type{I32, I32, I32}},
		{"report", []Type{I32, I32}},
		{"lease_acquire", []Type{I32, I32, I32, I32, I32, I32}},
		{"lease_result", []Type{I32, I32, I32}},
		{"lease_release", []Type{I32, I32}},
		{"state_get", []Type{I32, I32, I32, I32, I32, I32, I32, I32}},
		{"state_put", []Type{I32, I32, I32, I32, I64, I32, I32, I32, I32}},
		{"reserve", []Type{I32, I32, I32, I32, I32, I32}},
		{"reserve_result", []Type{I32, I32, I32, I32}},
		{"reserve_complete", []Type{I32, I32, I32}},
		{"cache_get", []Type{I32, I32, I32, I32}},
		{"cache_result", []Type{I32, I32, I32, I32, I32}},
		{"cache_fill", []Type{I32, I32, I32, I32, I32}},
		{"cache_invalidate", []Type{I32, I32}},
	}
}

// Features, the argument of abi(): it answers Minor for FeatureMinor, else 1 if
// the host has the feature and 0 if not.
const (
	FeatureMinor       = 0
	FeatureFetch       = 1 // fetch, fetch_head
	FeatureBreaker     = 2 // admit, report
	FeatureLease       = 3 // lease_acquire, lease_result, lease_release
	FeatureState       = 4 // state_get, state_put
	FeatureReservation = 5 // reserve, reserve_result, reserve_complete
	FeatureCache       = 6 // cache_get, cache_result, cache_fill, cache_invalidate
	FeatureTrailers    = 7 // trailers, and fields in finish of a response
)

// Handles that exist in every request. Other handles are positive, larger, and
// end with the request.
const (
	HandleRequestBody   = 1
	HandleResponseBody  = 2
	HandleFunctionLease = 3 // the lease of the manifest's [function.X.lease]; not_found without one
)

// FlagNoBlock in a flags argument asks for Again in place of waiting. All other
// bits must be zero.
const FlagNoBlock = 1

// Kinds of the config function.
const (
	ConfigEnv    = 0
	ConfigSecret = 1
)

// Levels of the log function, those of log/slog.
const (
	LogDebug = -4
	LogInfo  = 0
	LogWarn  = 4
	LogError = 8
)

// Modes of the body argument of fetch.
const (
	BodyNone   = 0
	BodyInline = 1 // the record's FieldBody
	BodyStream = 2 // write to the handle, then finish it
)

// Outcomes of report.
const (
	OutcomeSuccess  = 0
	OutcomeFailure  = 1
	OutcomeCanceled = 2 // the caller gave up: no verdict
	OutcomeExcluded = 3 // an error that says nothing about the dependency: no verdict
)

// Interests and readiness bits of a wait record.
const (
	WaitRead   = 1 // a body has bytes or ended; a fetch has its head; a lease has its result
	WaitWrite  = 2 // a body takes bytes
	WaitFailed = 4 // only in ready: the handle has failed, and the next call on it says how
)

// WaitSize is the size of one record of wait: handle, interest and ready, each
// a u32. The length that wait takes is in bytes, like every other length.
const WaitSize = 12

// StatusSize is the size of the record that status writes: remaining_ns i64,
// late_ns i64, fuel i64 (-1: not limited), flags u32, zero u32.
const StatusSize = 32

// Flags of the status record.
const (
	StatusCanceled  = 1 // the client has gone away
	StatusLate      = 2 // the client has been answered without this guest
	StatusLeaseLost = 4 // the function's lease is over
)

// LeaseSize is the size of the record that lease_result writes: fence u64,
// remaining_ns i64.
const LeaseSize = 16

// ErrorSize is the size of the fixed part of the record that error writes: code
// i32, zero u32, retry_after_ns i64, revision u64; text for the log follows.
const ErrorSize = 24

// Limits that hold before any manifest: a host refuses larger ones as TooLarge.
const (
	MaxName    = 256       // object, lease, state key, dependency and config names
	MaxLogLine = 16 << 10  // bytes of one log call; the rest is cut off
	MaxState   = 48 << 10  // bytes of one state value
	MaxHead    = 256 << 10 // bytes of one head or trailer record that a guest sends
	MaxHandles = 256       // handles of one request, the fixed three included; more are Overloaded
)
