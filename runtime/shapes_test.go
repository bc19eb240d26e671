package runtime_test

import (
	"slices"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// A shape is a way not to come to an end.
type shape struct {
	name   string
	module []byte
	path   string // of the Go guest that does what its path says
	ends   bool   // in a trap of its own, before the deadline
}

// computing returns the shapes that use the processor all the time, apart from
// those that end.
func computing() []shape {
	return []shape{
		{name: "tight loop", module: conformance.Loop()},
		{name: "nested loops", module: body(nestedLoops...)},
		{name: "call tree without loops", module: conformance.CallTree(60)},
		{name: "br_table machine", module: body(stateMachine...)},
		{name: "vector loop", module: body(vectorLoop...)},
		{name: "memory fill", module: conformance.MemoryFill(1024)},
		{name: "memory copy", module: body(memoryCopy...)},
		{name: "table fill", module: body(tableFill...)},
		{name: "growing to the limit and on", module: body(growing...)},
		{name: "Go loop", path: "loop"},
		{name: "Go allocation storm", path: "storm"},
	}
}

// blocked returns those that wait for something that does not come.
func blocked() []shape {
	return []shape{
		{name: "sleep for an hour", module: conformance.SleepPoll()},
		{name: "wait for nothing", module: conformance.Wait()},
		{name: "Go sleep for an hour", path: "sleep"},
		{name: "guarded fetch", path: "fetch?dependency=up&target=/x"},
		{name: "lease wait", path: "lease?object=doc/1&wait=3600000"},
	}
}

// recursive returns those that a bound of their own ends.
func recursive() []shape {
	return []shape{
		{name: "recursion", module: conformance.Recursion(), ends: true},
		{name: "mutual recursion through a table", module: mutualRecursion(), ends: true},
		{name: "Go recursion", path: "recurse", ends: true},
	}
}

// The bodies below have one local, a v128, and one, an i32, in this order, and
// a last instruction that nothing reaches.
var (
	nestedLoops = []byte{
		0x03, 0x40, // loop
		0x41, 0x00, 0x21, 0x01, //   i = 0
		0x03, 0x40, 0x20, 0x01, 0x41, 0x01, 0x6a, 0x22, 0x01, 0x41, 0xe8, 0x07, 0x48, 0x0d, 0x00, 0x0b, // loop: i += 1 while i < 1000
		0x0c, 0x00, 0x0b,
	}
	stateMachine = []byte{
		0x03, 0x40, 0x02, 0x40, 0x02, 0x40, // loop block block
		0x20, 0x01, 0x41, 0x01, 0x71, 0x0e, 0x01, 0x00, 0x01, 0x0b, // br_table by the last bit of i
		0x20, 0x01, 0x41, 0x03, 0x6a, 0x21, 0x01, 0x0c, 0x01, 0x0b, // i += 3, again
		0x20, 0x01, 0x41, 0x07, 0x6a, 0x21, 0x01, 0x0c, 0x00, 0x0b, // i += 7, again
	}
	vectorLoop = []byte{
		0x03, 0x40, 0x20, 0x00, 0x41, 0x01, 0xfd, 0x11, 0xfd, 0xae, 0x01, 0x21, 0x00, // v += splat 1
		0x0c, 0x00, 0x0b,
	}
	memoryCopy = []byte{
		0x03, 0x40, 0x41, 0x00, 0x41, 0x80, 0x80, 0x80, 0x04, 0x41, 0x80, 0x80, 0x80, 0x04, 0xfc, 0x0a, 0x00, 0x00, // 8 MiB down
		0x0c, 0x00, 0x0b,
	}
	tableFill = []byte{
		0x03, 0x40, 0x41, 0x00, 0xd0, 0x70, 0x41, 0xa0, 0x8d, 0x06, 0xfc, 0x11, 0x00, // 100,000 null references
		0x0c, 0x00, 0x0b,
	}
	growing = []byte{
		0x03, 0x40, 0x41, 0x01, 0x40, 0x00, 0x1a, // grow by a page
		0x3f, 0x00, 0x41, 0x10, 0x74, 0x41, 0x04, 0x6b, 0x41, 0x01, 0x36, 0x02, 0x00, // touch the last word
		0x0c, 0x00, 0x0b,
	}
)

// body returns a guest with 16 MiB of memory and a table of 100,000 elements
// whose handler has that body.
func body(code ...byte) []byte {
	return guest(100_000, wasmbin.Func{
		Locals: []wasmbin.Locals{{Count: 1, Type: wasmbin.V128}, {Count: 1, Type: wasmbin.I32}},
		Body:   slices.Concat(code, []byte{0x00, 0x0b}),
	}).Encode()
}

// mutualRecursion returns a guest of functions that call each other through the
// table.
func mutualRecursion() []byte {
	caller := func(element byte) wasmbin.Func {
		return wasmbin.Func{Body: []byte{0x41, element, 0x11, 0x00, 0x00, 0x0b}}
	}
	m := guest(2, caller(1), caller(0))
	m.Elements = []wasmbin.Element{{Offset: []byte{0x41, 0x00, 0x0b}, Funcs: []uint32{0, 1}}}
	return m.Encode()
}

// guest returns a module whose first function is the handler.
func guest(elements uint32, funcs ...wasmbin.Func) *wasmbin.Module {
	return &wasmbin.Module{
		Types:    []wasmbin.FuncType{{Results: []wasmbin.ValueType{wasmbin.I32}}},
		Funcs:    funcs,
		Tables:   []wasmbin.TableType{{Element: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: elements}}},
		Memories: []wasmbin.Limits{{Min: 256}},
		Exports: []wasmbin.Export{
			{Name: abi.ExportMemory, Kind: wasmbin.ExternMemory},
			{Name: abi.ExportHandle, Kind: wasmbin.ExternFunc},
		},
	}
}
