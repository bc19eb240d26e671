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

// Current returns the host. Its type is not Functions, so that calls are direct
// and arguments stay on the stack.
func Current() imports { return imports{} }

type imports struct{}

var _ Functions = imports{}

func ptr(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

func size(p []byte) uint32 { return uint32(len(p)) }

// Error implements Functions.
func (imports) Error(p []byte) int32 { return errorImport(ptr(p), size(p)) }

// Status implements Functions.
func (imports) Status(out *Status) int32 { return statusImport(unsafe.Pointer(out)) }

// Log implements Functions.
func (imports) Log(level int32, line []byte) int32 { return logImport(level, ptr(line), size(line)) }

// Config implements Functions.
func (imports) Config(kind int32, name string, p []byte) int32 {
	return configImport(kind, name, ptr(p), size(p))
}

// RequestHead implements Functions.
func (imports) RequestHead(p []byte) int32 { return requestHeadImport(ptr(p), size(p)) }

// ResponseHead implements Functions.
func (imports) ResponseHead(status int32, head []byte, flags uint32) int32 {
	return responseHeadImport(status, ptr(head), size(head), flags)
}

// ResponseFail implements Functions.
func (imports) ResponseFail(code, retryMillis int32, text string) int32 {
	return responseFailImport(code, retryMillis, text)
}

// Read implements Functions.
func (imports) Read(h int32, p []byte, flags uint32) int32 {
	return readImport(h, ptr(p), size(p), flags)
}

// Write implements Functions.
func (imports) Write(h int32, p []byte, flags uint32) int32 {
	return writeImport(h, ptr(p), size(p), flags)
}

// Flush implements Functions.
func (imports) Flush(h int32) int32 { return flushImport(h) }

// Finish implements Functions.
func (imports) Finish(h int32, trailers []byte) int32 {
	return finishImport(h, ptr(trailers), size(trailers))
}

// Trailers implements Functions.
func (imports) Trailers(h int32, p []byte) int32 { return trailersImport(h, ptr(p), size(p)) }

// Close implements Functions.
func (imports) Close(h int32) int32 { return closeImport(h) }

// Fetch implements Functions.
func (imports) Fetch(dep string, request []byte, body, flags uint32) int32 {
	return fetchImport(dep, ptr(request), size(request), body, flags)
}

// FetchHead implements Functions.
func (imports) FetchHead(h int32, p []byte, flags uint32) int32 {
	return fetchHeadImport(h, ptr(p), size(p), flags)
}

// Admit implements Functions.
func (imports) Admit(dep string, flags uint32) int32 { return admitImport(dep, flags) }

// Report implements Functions.
func (imports) Report(h, outcome int32) int32 { return reportImport(h, outcome) }

// LeaseAcquire implements Functions.
func (imports) LeaseAcquire(object, name string, options []byte) int32 {
	return leaseAcquireImport(object, name, ptr(options), size(options))
}

// LeaseResult implements Functions.
func (imports) LeaseResult(h int32, out *Grant, flags uint32) int32 {
	return leaseResultImport(h, unsafe.Pointer(out), flags)
}

// LeaseRelease implements Functions.
func (imports) LeaseRelease(h int32, flags uint32) int32 { return leaseReleaseImport(h, flags) }

// StateGet implements Functions.
func (imports) StateGet(object, key string, lease int32, p []byte, out *uint64) int32 {
	return stateGetImport(object, key, lease, ptr(p), size(p), unsafe.Pointer(out))
}

// StatePut implements Functions.
func (imports) StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32 {
	return statePutImport(object, key, revision, lease, ptr(value), size(value), unsafe.Pointer(out))
}
