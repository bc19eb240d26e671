//go:build !wasip1

package host

import (
	"sync"
	"sync/atomic"

	"github.com/edgehost/edgehost/guests/abi"
)

// Functions are the host functions that the SDK uses.
type Functions interface {
	Error(p []byte) int32
	Status(out *Status) int32
	Log(level int32, line []byte) int32
	Config(kind int32, name string, p []byte) int32
	RequestHead(p []byte) int32
	ResponseHead(status int32, head []byte, flags uint32) int32
	ResponseFail(code, retryMillis int32, text string) int32
	Read(h int32, p []byte, flags uint32) int32
	Write(h int32, p []byte, flags uint32) int32
	Flush(h int32) int32
	Finish(h int32, trailers []byte) int32
	Trailers(h int32, p []byte) int32
	Close(h int32) int32
	Fetch(dep string, request []byte, body, flags uint32) int32
	FetchHead(h int32, p []byte, flags uint32) int32
	Admit(dep string, flags uint32) int32
	Report(h, outcome int32) int32
	LeaseAcquire(object, name string, options []byte) int32
	LeaseResult(h int32, out *Grant, flags uint32) int32
	LeaseRelease(h int32, flags uint32) int32
	StateGet(object, key string, lease int32, p []byte, out *uint64) int32
	StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32
}

// A guest has one host and one entry, and runs one request at a time; here the
// process stands for the instance, and turn makes whoever wants to be its host
// wait for the one before.
var (
	turn    sync.Mutex
	current atomic.Pointer[Functions]
	entry   func() int32
)

// Register makes serve the guest's answer to a request.
func Register(serve func() int32) { entry = serve }

// Registered returns the last argument of Register, nil before the first.
func Registered() func() int32 { return entry }

// Use makes f the host while it runs do. Calls of several goroutines are served
// one after another; do must not call Use.
func Use(f Functions, do func()) {
	turn.Lock()
	defer turn.Unlock()
	current.Store(&f)
	defer current.Store(nil)
	do()
}

// functions returns the host in use. Outside of Use there is none, and every
// call answers abi.Unsupported.
func functions() Functions {
	if f := current.Load(); f != nil {
		return *f
	}
	return none{}
}

// Error copies the record of the last failed call into p.
func Error(p []byte) int32 { return functions().Error(p) }

// ReadStatus fills the status record.
func ReadStatus(out *Status) int32 { return functions().Status(out) }

// Log hands one line to the host.
func Log(level int32, line []byte) int32 { return functions().Log(level, line) }

// Config copies a configuration value into p.
func Config(kind int32, name string, p []byte) int32 { return functions().Config(kind, name, p) }

// RequestHead copies the head of the request into p.
func RequestHead(p []byte) int32 { return functions().RequestHead(p) }

// ResponseHead sends a status and the fields in head.
func ResponseHead(status int32, head []byte, flags uint32) int32 {
	return functions().ResponseHead(status, head, flags)
}

// ResponseFail leaves the answer for code to the host.
func ResponseFail(code, retryMillis int32, text string) int32 {
	return functions().ResponseFail(code, retryMillis, text)
}

// Read takes bytes of a body; zero is its end.
func Read(h int32, p []byte, flags uint32) int32 { return functions().Read(h, p, flags) }

// Write gives bytes to a body and returns how many were taken.
func Write(h int32, p []byte, flags uint32) int32 { return functions().Write(h, p, flags) }

// Flush pushes what a body has taken so far to the peer.
func Flush(h int32) int32 { return functions().Flush(h) }

// Finish ends a body that the guest writes, with trailers.
func Finish(h int32, trailers []byte) int32 { return functions().Finish(h, trailers) }

// Trailers copies the trailers of a body that has ended into p.
func Trailers(h int32, p []byte) int32 { return functions().Trailers(h, p) }

// Close drops a handle.
func Close(h int32) int32 { return functions().Close(h) }

// Fetch starts a call and returns its handle.
func Fetch(dep string, request []byte, body, flags uint32) int32 {
	return functions().Fetch(dep, request, body, flags)
}

// FetchHead copies the head of the answer to a call into p.
func FetchHead(h int32, p []byte, flags uint32) int32 { return functions().FetchHead(h, p, flags) }

// Admit asks a dependency's breaker for admission.
func Admit(dep string, flags uint32) int32 { return functions().Admit(dep, flags) }

// Report ends an admission.
func Report(h, outcome int32) int32 { return functions().Report(h, outcome) }

// LeaseAcquire asks for a lease.
func LeaseAcquire(object, name string, options []byte) int32 {
	return functions().LeaseAcquire(object, name, options)
}

// LeaseResult fills the state of a lease.
func LeaseResult(h int32, out *Grant, flags uint32) int32 {
	return functions().LeaseResult(h, out, flags)
}

// LeaseRelease gives a lease back.
func LeaseRelease(h int32, flags uint32) int32 { return functions().LeaseRelease(h, flags) }

// StateGet copies a state value into p and its revision into out.
func StateGet(object, key string, lease int32, p []byte, out *uint64) int32 {
	return functions().StateGet(object, key, lease, p, out)
}

// StatePut replaces a state value and puts the new revision into out.
func StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32 {
	return functions().StatePut(object, key, revision, lease, value, out)
}

// none is the host of code that runs outside of Use.
type none struct{}

const noHost = int32(abi.Unsupported)

func (none) Error([]byte) int32                                           { return noHost }
func (none) Status(*Status) int32                                         { return noHost }
func (none) Log(int32, []byte) int32                                      { return noHost }
func (none) Config(int32, string, []byte) int32                           { return noHost }
func (none) RequestHead([]byte) int32                                     { return noHost }
func (none) ResponseHead(int32, []byte, uint32) int32                     { return noHost }
func (none) ResponseFail(int32, int32, string) int32                      { return noHost }
func (none) Read(int32, []byte, uint32) int32                             { return noHost }
func (none) Write(int32, []byte, uint32) int32                            { return noHost }
func (none) Flush(int32) int32                                            { return noHost }
func (none) Finish(int32, []byte) int32                                   { return noHost }
func (none) Trailers(int32, []byte) int32                                 { return noHost }
func (none) Close(int32) int32                                            { return noHost }
func (none) Fetch(string, []byte, uint32, uint32) int32                   { return noHost }
func (none) FetchHead(int32, []byte, uint32) int32                        { return noHost }
func (none) Admit(string, uint32) int32                                   { return noHost }
func (none) Report(int32, int32) int32                                    { return noHost }
func (none) LeaseAcquire(string, string, []byte) int32                    { return noHost }
func (none) LeaseResult(int32, *Grant, uint32) int32                      { return noHost }
func (none) LeaseRelease(int32, uint32) int32                             { return noHost }
func (none) StateGet(string, string, int32, []byte, *uint64) int32        { return noHost }
func (none) StatePut(string, string, int64, int32, []byte, *uint64) int32 { return noHost }
