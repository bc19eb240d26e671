package conformance

import "github.com/edgehost/edgehost/guests/abi"

// UnknownImport returns a guest that imports a function of no parameters and
// one i32 result under the given names, of which the host knows nothing.
func UnknownImport(from, name string) []byte {
	m := &module{}
	m.imported(from, name, handleType)
	return m.handled(i32c(abi.HandleDone))
}

// WrongImport returns a guest that imports write with parameters that it does
// not have.
func WrongImport() []byte {
	m := &module{}
	m.imported(abi.Module, "write", signature{[]abi.Type{abi.I64}, abi.I32})
	return m.handled(i32c(abi.HandleDone))
}

// HugeMemory returns a guest that needs that many pages from the start.
func HugeMemory(pages uint32) []byte {
	m := &module{}
	handle := m.function(handleType, nil, i32c(abi.HandleDone))
	m.memory(pages)
	m.export(abi.ExportHandle, handle)
	return m.encode()
}

// NoHandle returns a module that exports a memory and nothing to call.
func NoHandle() []byte {
	m := &module{}
	m.memory(1)
	return m.encode()
}

// NoMemory returns a module that exports edgehost_handle and no memory.
func NoMemory() []byte {
	m := &module{}
	m.export(abi.ExportHandle, m.function(handleType, nil, i32c(abi.HandleDone)))
	return m.encode()
}

// WrongHandle returns a guest whose edgehost_handle has no result.
func WrongHandle() []byte {
	m := &module{}
	handle := m.function(signature{}, nil)
	m.memory(1)
	m.export(abi.ExportHandle, handle)
	return m.encode()
}

// ReservedExport returns a guest that exports a name of this contract that does
// not exist.
func ReservedExport() []byte {
	m := &module{}
	m.export(abi.ReservedPrefix+"teleport", m.function(signature{}, nil))
	return m.handled(i32c(abi.HandleDone))
}

// ComponentHeader returns the first bytes of a component, which is not a core
// module.
func ComponentHeader() []byte { return []byte("\x00asm\x0d\x00\x01\x00") }

// handled completes a guest of one page whose edgehost_handle is body.
func (m *module) handled(body ...[]byte) []byte {
	handle := m.function(handleType, nil, body...)
	m.memory(1)
	m.export(abi.ExportHandle, handle)
	return m.encode()
}
