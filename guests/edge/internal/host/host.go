// Package host is the boundary between the SDK and its host. In a Wasm guest
// each function is a host function of the ABI and Register feeds the export
// edgehost_handle; elsewhere the functions go to the Functions in use, so that
// the same SDK code runs under go test.
//
// Arguments and results are those of the ABI, with a slice or string in place
// of pointer and length. A result below zero is an abi.Code.
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
