//go:build !wasip1

package host

import (
	"sync"
	"sync/atomic"

	"github.com/edgehost/edgehost/guests/abi"
)

// A guest has one host and one entry, and runs one request at a time; here the
// process stands for the instance, and turn makes whoever wants to be its host
// wait for the one before. It guards entry as well, but for init functions.
var (
	turn    sync.Mutex
	current atomic.Pointer[Functions]
	entry   func() int32
)

// Register makes serve the guest's answer to a request.
func Register(serve func() int32) { entry = serve }

// Capture returns what register registers, and leaves the guest's own entry as
// it was.
func Capture(register func()) func() int32 {
	turn.Lock()
	defer turn.Unlock()
	own := entry
	defer func() { entry = own }()
	register()
	return entry
}

// Use makes f the host while it runs do, which gets the guest's entry, nil if
// there is none. Calls of several goroutines are served one after another; do
// must call neither Use nor Capture.
func Use(f Functions, do func(entry func() int32)) {
	turn.Lock()
	defer turn.Unlock()
	current.Store(&f)
	defer current.Store(nil)
	labeled(func() { do(entry) })
}

// Current returns the host in use. Outside of Use there is none, and every call
// answers abi.Unsupported.
func Current() Functions {
	if f := current.Load(); f != nil {
		return *f
	}
	return none{}
}

// none is the host of code that runs outside of Use.
type none struct{}

const noHost = int32(abi.Unsupported)

// Error implements Functions.
func (none) Error([]byte) int32 { return noHost }

// Status implements Functions.
func (none) Status(*Status) int32 { return noHost }

// Log implements Functions.
func (none) Log(int32, []byte) int32 { return noHost }

// Config implements Functions.
func (none) Config(int32, string, []byte) int32 { return noHost }

// RequestHead implements Functions.
func (none) RequestHead([]byte) int32 { return noHost }

// ResponseHead implements Functions.
func (none) ResponseHead(int32, []byte, uint32) int32 { return noHost }

// ResponseFail implements Functions.
func (none) ResponseFail(int32, int32, string) int32 { return noHost }

// Read implements Functions.
func (none) Read(int32, []byte, uint32) int32 { return noHost }

// Write implements Functions.
func (none) Write(int32, []byte, uint32) int32 { return noHost }

// Flush implements Functions.
func (none) Flush(int32) int32 { return noHost }

// Finish implements Functions.
func (none) Finish(int32, []byte) int32 { return noHost }

// Trailers implements Functions.
func (none) Trailers(int32, []byte) int32 { return noHost }

// Close implements Functions.
func (none) Close(int32) int32 { return noHost }

// Fetch implements Functions.
func (none) Fetch(string, []byte, uint32, uint32) int32 { return noHost }

// FetchHead implements Functions.
func (none) FetchHead(int32, []byte, uint32) int32 { return noHost }

// Admit implements Functions.
func (none) Admit(string, uint32) int32 { return noHost }

// Report implements Functions.
func (none) Report(int32, int32) int32 { return noHost }

// LeaseAcquire implements Functions.
func (none) LeaseAcquire(string, string, []byte) int32 { return noHost }

// LeaseResult implements Functions.
func (none) LeaseResult(int32, *Grant, uint32) int32 { return noHost }

// LeaseRelease implements Functions.
func (none) LeaseRelease(int32, uint32) int32 { return noHost }

// StateGet implements Functions.
func (none) StateGet(string, string, int32, []byte, *uint64) int32 { return noHost }

// StatePut implements Functions.
func (none) StatePut(string, string, int64, int32, []byte, *uint64) int32 { return noHost }
