// Package host is the boundary between the SDK and its host. In a Wasm guest
// Current is the imports, and Register feeds the export edgehost_handle;
// elsewhere it is what the test put in their place, so that the same SDK code
// runs under go test.
package host

// Status is the record of the status function, laid out as in the ABI.
type Status struct {
	RemainingNanos int64
	LateNanos      int64
	Fuel           int64
	Flags          uint32
	_              uint32
}

// Grant is the record of the lease_result function, laid out as in the ABI.
type Grant struct {
	Fence          uint64
	RemainingNanos int64
}

// Functions are the host functions that the SDK uses: the imports of a Wasm
// guest, or a host that runs in the same process.
//
// Arguments and results are those of the ABI, with a slice or string in place of
// pointer and length. A result below zero is an abi.Code.
type Functions interface {
	// Error copies the record of the last call that failed into p.
	Error(p []byte) int32
	// Status fills the status record.
	Status(out *Status) int32
	// Log hands one line to the log.
	Log(level int32, line []byte) int32
	// Config copies a configuration value into p.
	Config(kind int32, name string, p []byte) int32
	// RequestHead copies the head of the request into p.
	RequestHead(p []byte) int32
	// ResponseHead sends a status and header fields.
	ResponseHead(status int32, head []byte, flags uint32) int32
	// ResponseFail leaves the answer for a code to the host.
	ResponseFail(code, retryMillis int32, text string) int32
	// Read takes bytes of a body; zero is its end.
	Read(h int32, p []byte, flags uint32) int32
	// Write gives bytes to a body and returns how many were taken.
	Write(h int32, p []byte, flags uint32) int32
	// Flush pushes what a body has taken so far to the peer.
	Flush(h int32) int32
	// Finish ends a body that the guest writes, with trailers.
	Finish(h int32, trailers []byte) int32
	// Trailers copies the trailers of a body that has ended into p.
	Trailers(h int32, p []byte) int32
	// Close drops a handle.
	Close(h int32) int32
	// Fetch starts a call and returns its handle.
	Fetch(dep string, request []byte, body, flags uint32) int32
	// FetchHead copies the head of a call's answer into p.
	FetchHead(h int32, p []byte, flags uint32) int32
	// Admit asks a dependency's breaker and returns the admission's handle.
	Admit(dep string, flags uint32) int32
	// Report ends an admission.
	Report(h, outcome int32) int32
	// LeaseAcquire asks for a lease and returns its handle.
	LeaseAcquire(object, name string, options []byte) int32
	// LeaseResult fills the state of a lease.
	LeaseResult(h int32, out *Grant, flags uint32) int32
	// LeaseRelease gives a lease back.
	LeaseRelease(h int32, flags uint32) int32
	// StateGet copies a state value into p and its revision into out.
	StateGet(object, key string, lease int32, p []byte, out *uint64) int32
	// StatePut replaces a state value and puts its new revision into out.
	StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32
}
