package wasmbin

// Counter is the state of metering inside a guest: what is left of the current
// slice of fuel, and how many calls may still nest.
type Counter int64

// Fuel takes the high bits, so that a counter below zero means that it has run
// out. Depth takes the low ones and counts up; the bit above it is set when it
// runs out. Both take one subtraction, and one comparison with exhausted.
const (
	depthBits = 20
	depthUnit = 1
	tooDeep   = 1 << depthBits
	fuelShift = depthBits + 1
	fuelUnit  = 1 << fuelShift
	exhausted = -1<<63 | tooDeep
)

// MaxDepth is the largest depth that a Counter holds.
const MaxDepth = tooDeep - 1

// NewCounter returns a counter with a slice of fuel and with room for depth
// nested calls, at most MaxDepth. A slice is less than 2^42.
func NewCounter(fuel int64, depth int32) Counter {
	return Counter(fuel<<fuelShift + MaxDepth - int64(depth))
}

// Fuel is what is left of the slice. It is negative if more was used.
func (c Counter) Fuel() int64 { return int64(c) >> fuelShift }

// Depth is how many more calls may nest. It is negative if too many do, and
// then the guest has to be stopped.
func (c Counter) Depth() int32 { return MaxDepth - int32(c&(fuelUnit-1)) }
