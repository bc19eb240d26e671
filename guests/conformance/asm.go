package conformance

import (
	"encoding/binary"
	"slices"

	"github.com/edgehost/edgehost/guests/abi"
)

// An assembler for as much of a core WebAssembly module as the guests of this
// package need. It knows the binary format and nothing about what it encodes:
// an ill-typed body is found when the module is compiled.

// sectionID numbers a module's sections; they are written in this order.
type sectionID byte

const (
	typeSection     sectionID = 1
	importSection   sectionID = 2
	functionSection sectionID = 3
	memorySection   sectionID = 5
	exportSection   sectionID = 7
	codeSection     sectionID = 10
	dataSection     sectionID = 11
)

const (
	exportFunction = 0
	exportMemory   = 2
)

// A signature is a function type; result is zero if there is none.
type signature struct {
	params []abi.Type
	result abi.Type
}

// A module is built by imports first, then functions, in the order of their
// indices, and encoded by encode.
type module struct {
	types   [][]byte
	imports [][]byte
	funcs   [][]byte // the type index of each defined function
	bodies  [][]byte
	exports [][]byte
	data    [][]byte
	pages   uint32 // minimum of the one memory; zero: no memory
}

// imported declares an imported function and returns its index.
func (m *module) imported(from, name string, s signature) uint32 {
	m.imports = append(m.imports, slices.Concat(text(from), text(name), []byte{0}, uleb(m.typeIndex(s))))
	return uint32(len(m.imports) - 1)
}

// host imports a function of the ABI.
func (m *module) host(name string) uint32 {
	for _, f := range abi.Functions() {
		if f.Name == name {
			return m.imported(abi.Module, name, signature{f.Params, abi.I32})
		}
	}
	return m.imported(abi.Module, name, signature{nil, abi.I32})
}

// next returns the index that the next defined function gets, for calls to
// itself.
func (m *module) next() uint32 { return uint32(len(m.imports) + len(m.funcs)) }

// function defines a function with the given locals after its parameters and
// returns its index.
func (m *module) function(s signature, locals []abi.Type, body ...[]byte) uint32 {
	index := m.next()
	declared := uleb(uint32(len(locals)))
	for _, t := range locals {
		declared = append(declared, 1, byte(t))
	}
	code := slices.Concat(declared, slices.Concat(body...), []byte{opEnd})
	m.funcs = append(m.funcs, uleb(m.typeIndex(s)))
	m.bodies = append(m.bodies, slices.Concat(uleb(uint32(len(code))), code))
	return index
}

// export exports the function of that index.
func (m *module) export(name string, function uint32) {
	m.exports = append(m.exports, slices.Concat(text(name), []byte{exportFunction}, uleb(function)))
}

// memory gives the module a memory of that many pages at least and exports it.
func (m *module) memory(pages uint32) {
	m.pages = pages
	m.exports = append(m.exports, slices.Concat(text(abi.ExportMemory), []byte{exportMemory, 0}))
}

// bytes puts b at an address of the initial memory.
func (m *module) bytes(address uint32, b []byte) {
	m.data = append(m.data, slices.Concat([]byte{0}, i32c(int32(address)), []byte{opEnd}, text(string(b))))
}

func (m *module) typeIndex(s signature) uint32 {
	encoded := slices.Concat([]byte{0x60}, uleb(uint32(len(s.params))))
	for _, p := range s.params {
		encoded = append(encoded, byte(p))
	}
	if s.result == 0 {
		encoded = append(encoded, 0)
	} else {
		encoded = append(encoded, 1, byte(s.result))
	}
	for i, known := range m.types {
		if string(known) == string(encoded) {
			return uint32(i)
		}
	}
	m.types = append(m.types, encoded)
	return uint32(len(m.types) - 1)
}

func (m *module) encode() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = appendSection(b, typeSection, m.types)
	b = appendSection(b, importSection, m.imports)
	b = appendSection(b, functionSection, m.funcs)
	if m.pages > 0 {
		b = appendSection(b, memorySection, [][]byte{append([]byte{0}, uleb(m.pages)...)})
	}
	b = appendSection(b, exportSection, m.exports)
	b = appendSection(b, codeSection, m.bodies)
	return appendSection(b, dataSection, m.data)
}

func appendSection(b []byte, id sectionID, items [][]byte) []byte {
	if len(items) == 0 {
		return b
	}
	content := append(uleb(uint32(len(items))), slices.Concat(items...)...)
	b = append(append(b, byte(id)), uleb(uint32(len(content)))...)
	return append(b, content...)
}

// text is a length and that many bytes.
func text(s string) []byte { return append(uleb(uint32(len(s))), s...) }

// uleb is the unsigned LEB128 encoding, which is Go's varint.
func uleb(v uint32) []byte { return binary.AppendUvarint(nil, uint64(v)) }

// sleb is the signed LEB128 encoding.
func sleb(v int64) []byte {
	var b []byte
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && low&0x40 == 0) || (v == -1 && low&0x40 != 0) {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
