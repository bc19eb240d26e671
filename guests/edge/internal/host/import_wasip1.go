package host

import "unsafe"

//go:wasmimport edgehost_v1 error
//go:noescape
func errorImport(p unsafe.Pointer, c uint32) int32

//go:wasmimport edgehost_v1 status
//go:noescape
func statusImport(out unsafe.Pointer) int32

//go:wasmimport edgehost_v1 log
//go:noescape
func logImport(level int32, p unsafe.Pointer, n uint32) int32

//go:wasmimport edgehost_v1 config
//go:noescape
func configImport(kind int32, name string, p unsafe.Pointer, c uint32) int32

//go:wasmimport edgehost_v1 request_head
//go:noescape
func requestHeadImport(p unsafe.Pointer, c uint32) int32

//go:wasmimport edgehost_v1 response_head
//go:noescape
func responseHeadImport(status int32, p unsafe.Pointer, n, flags uint32) int32

//go:wasmimport edgehost_v1 response_fail
//go:noescape
func responseFailImport(code, retryMillis int32, text string) int32

//go:wasmimport edgehost_v1 read
//go:noescape
func readImport(h int32, p unsafe.Pointer, c, flags uint32) int32

//go:wasmimport edgehost_v1 write
//go:noescape
func writeImport(h int32, p unsafe.Pointer, n, flags uint32) int32

//go:wasmimport edgehost_v1 flush
func flushImport(h int32) int32

//go:wasmimport edgehost_v1 finish
//go:noescape
func finishImport(h int32, p unsafe.Pointer, n uint32) int32

//go:wasmimport edgehost_v1 trailers
//go:noescape
func trailersImport(h int32, p unsafe.Pointer, c uint32) int32

//go:wasmimport edgehost_v1 close
func closeImport(h int32) int32

//go:wasmimport edgehost_v1 fetch
//go:noescape
func fetchImport(dep string, p unsafe.Pointer, n, body, flags uint32) int32

//go:wasmimport edgehost_v1 fetch_head
//go:noescape
func fetchHeadImport(h int32, p unsafe.Pointer, c, flags uint32) int32

//go:wasmimport edgehost_v1 admit
//go:noescape
func admitImport(dep string, flags uint32) int32

//go:wasmimport edgehost_v1 report
func reportImport(h, outcome int32) int32

//go:wasmimport edgehost_v1 lease_acquire
//go:noescape
func leaseAcquireImport(object, name string, p unsafe.Pointer, n uint32) int32

//go:wasmimport edgehost_v1 lease_result
//go:noescape
func leaseResultImport(h int32, out unsafe.Pointer, flags uint32) int32

//go:wasmimport edgehost_v1 lease_release
func leaseReleaseImport(h int32, flags uint32) int32

//go:wasmimport edgehost_v1 state_get
//go:noescape
func stateGetImport(object, key string, lease int32, p unsafe.Pointer, c uint32, out unsafe.Pointer) int32

//go:wasmimport edgehost_v1 state_put
//go:noescape
func statePutImport(object, key string, revision int64, lease int32, p unsafe.Pointer, n uint32, out unsafe.Pointer) int32

func ptr(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

func size(p []byte) uint32 { return uint32(len(p)) }

// Error copies the record of the last failed call into p.
func Error(p []byte) int32 { return errorImport(ptr(p), size(p)) }

// ReadStatus fills the status record.
func ReadStatus(out *Status) int32 { return statusImport(unsafe.Pointer(out)) }

// Log hands one line to the host.
func Log(level int32, line []byte) int32 { return logImport(level, ptr(line), size(line)) }

// Config copies a configuration value into p.
func Config(kind int32, name string, p []byte) int32 {
	return configImport(kind, name, ptr(p), size(p))
}

// RequestHead copies the head of the request into p.
func RequestHead(p []byte) int32 { return requestHeadImport(ptr(p), size(p)) }

// ResponseHead sends a status and the fields in head.
func ResponseHead(status int32, head []byte, flags uint32) int32 {
	return responseHeadImport(status, ptr(head), size(head), flags)
}

// ResponseFail leaves the answer for code to the host.
func ResponseFail(code, retryMillis int32, text string) int32 {
	return responseFailImport(code, retryMillis, text)
}

// Read takes bytes of a body; zero is its end.
func Read(h int32, p []byte, flags uint32) int32 { return readImport(h, ptr(p), size(p), flags) }

// Write gives bytes to a body and returns how many were taken.
func Write(h int32, p []byte, flags uint32) int32 { return writeImport(h, ptr(p), size(p), flags) }

// Flush pushes what a body has taken so far to the peer.
func Flush(h int32) int32 { return flushImport(h) }

// Finish ends a body that the guest writes, with trailers.
func Finish(h int32, trailers []byte) int32 { return finishImport(h, ptr(trailers), size(trailers)) }

// Trailers copies the trailers of a body that has ended into p.
func Trailers(h int32, p []byte) int32 { return trailersImport(h, ptr(p), size(p)) }

// Close drops a handle.
func Close(h int32) int32 { return closeImport(h) }

// Fetch starts a call and returns its handle.
func Fetch(dep string, request []byte, body, flags uint32) int32 {
	return fetchImport(dep, ptr(request), size(request), body, flags)
}

// FetchHead copies the head of the answer to a call into p.
func FetchHead(h int32, p []byte, flags uint32) int32 {
	return fetchHeadImport(h, ptr(p), size(p), flags)
}

// Admit asks a dependency's breaker for admission.
func Admit(dep string, flags uint32) int32 { return admitImport(dep, flags) }

// Report ends an admission.
func Report(h, outcome int32) int32 { return reportImport(h, outcome) }

// LeaseAcquire asks for a lease.
func LeaseAcquire(object, name string, options []byte) int32 {
	return leaseAcquireImport(object, name, ptr(options), size(options))
}

// LeaseResult fills the state of a lease.
func LeaseResult(h int32, out *Grant, flags uint32) int32 {
	return leaseResultImport(h, unsafe.Pointer(out), flags)
}

// LeaseRelease gives a lease back.
func LeaseRelease(h int32, flags uint32) int32 { return leaseReleaseImport(h, flags) }

// StateGet copies a state value into p and its revision into out.
func StateGet(object, key string, lease int32, p []byte, out *uint64) int32 {
	return stateGetImport(object, key, lease, ptr(p), size(p), unsafe.Pointer(out))
}

// StatePut replaces a state value and puts the new revision into out.
func StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32 {
	return statePutImport(object, key, revision, lease, ptr(value), size(value), unsafe.Pointer(out))
}
