package runtime

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/guests/abi"
)

// A hostFunc is one function of the ABI. Its arguments come as 64-bit words of
// which only the width of the parameter counts: the upper half of an i32 is
// garbage. Its result is a value, or an error that becomes a code.
type hostFunc func(x *exchange, a []uint64) (int32, error)

// hostFuncs are the functions that this host has. Those of the ABI that are not
// here answer Unsupported.
func hostFuncs() map[string]hostFunc {
	return map[string]hostFunc{
		"abi": hostABI, "error": hostError, "wait": hostWait, "status": hostStatus,
		"log": hostLog, "config": hostConfig,
		"request_head": hostRequestHead, "response_head": hostResponseHead, "response_fail": hostResponseFail,
		"read": hostRead, "write": hostWrite, "flush": hostFlush, "finish": hostFinish,
		"trailers": hostTrailers, "close": hostClose,
		"fetch": hostFetch, "fetch_head": hostFetchHead, "admit": hostAdmit, "report": hostReport,
		"lease_acquire": hostLeaseAcquire, "lease_result": hostLeaseResult, "lease_release": hostLeaseRelease,
		"state_get": hostStateGet, "state_put": hostStatePut,
	}
}

func hostUnsupported(*exchange, []uint64) (int32, error) { return 0, abi.Unsupported }

// early reports whether a function works while there is no request.
func early(name string) bool {
	switch name {
	case "abi", "error", "log", "config":
		return true
	}
	return false
}

var errNoRequest = fmt.Errorf("there is no request: %w", abi.Conflict)

// A hostCall makes a hostFunc callable by guests.
type hostCall struct {
	name  string
	fn    hostFunc
	early bool
}

var _ api.GoModuleFunction = hostCall{}

// Call implements api.GoModuleFunction.
func (c hostCall) Call(ctx context.Context, _ api.Module, stack []uint64) {
	i, _ := ctx.Value(instanceKey{}).(*instance)
	if i.guest.stopped() {
		panic(errInterrupted)
	}
	i.meter.rest()
	n, err := c.serve(&i.x, stack)
	if i.guest.stopped() {
		panic(errInterrupted) // whatever the call came to: the guest must not go on
	}
	if err != nil {
		n = i.x.fail(c.name, err)
	}
	stack[0] = uint64(uint32(n))
}

func (c hostCall) serve(x *exchange, stack []uint64) (int32, error) {
	if !x.active && !c.early {
		return 0, errNoRequest
	}
	return c.fn(x, stack)
}

// provideHost makes the ABI's functions importable in r.
func provideHost(ctx context.Context, r wazero.Runtime) error {
	builder := r.NewHostModuleBuilder(abi.Module)
	table := hostFuncs()
	for _, f := range abi.Functions() {
		fn, ok := table[f.Name]
		if !ok {
			fn = hostUnsupported
		}
		params := make([]api.ValueType, len(f.Params))
		for i, param := range f.Params {
			params[i] = api.ValueType(param)
		}
		builder.NewFunctionBuilder().
			WithGoModuleFunction(hostCall{f.Name, fn, early(f.Name)}, params, []api.ValueType{api.ValueTypeI32}).
			Export(f.Name)
	}
	_, err := builder.Instantiate(ctx)
	return err
}

// noBlock reads a flags argument.
func noBlock(flags uint64) (bool, error) {
	if uint32(flags)&^abi.FlagNoBlock != 0 {
		return false, errFlags
	}
	return uint32(flags) == abi.FlagNoBlock, nil
}

var errFlags = fmt.Errorf("a flag is not known: %w", abi.Unsupported)
