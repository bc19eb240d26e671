package host

import "github.com/edgehost/edgehost/guests/abi"

// entry is set while the module initializes and read by every call.
var entry func() int32

// Register makes serve the guest's answer to a request.
func Register(serve func() int32) { entry = serve }

//go:wasmexport edgehost_handle
func handle() int32 {
	if entry == nil {
		imports{}.Log(abi.LogError, []byte("edge: no handler: call edge.Handle in an init function, main does not run"))
		return int32(abi.Unsupported)
	}
	return entry()
}
