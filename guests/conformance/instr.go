package conformance

import "slices"

// Instructions, named as in the WebAssembly text format where that is short.
const (
	opUnreachable = 0x00
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opReturn      = 0x0f
	opCall        = 0x10
	opDrop        = 0x1a
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opLocalTee    = 0x22
	opI32Load     = 0x28
	opI64Load     = 0x29
	opI32Store    = 0x36
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32Const    = 0x41
	opI64Const    = 0x42
	opI32Eqz      = 0x45
	opI32Eq       = 0x46
	opI32Ne       = 0x47
	opI32LtS      = 0x48
	opI32GeU      = 0x4f
	opI32LeS      = 0x4c
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opI32Mul      = 0x6c
	opI32Wrap     = 0xa7 // of an i64
	opI64ExtendS  = 0xac // of an i32
	opBulk        = 0xfc
	bulkFill      = 11

	noResult = 0x40 // the type of a block that leaves nothing
)

// do is one instruction without immediates, or several.
func do(ops ...byte) []byte { return ops }

func i32c(v int32) []byte      { return append([]byte{opI32Const}, sleb(int64(v))...) }
func i64c(v int64) []byte      { return append([]byte{opI64Const}, sleb(v)...) }
func get(local uint32) []byte  { return append([]byte{opLocalGet}, uleb(local)...) }
func set(local uint32) []byte  { return append([]byte{opLocalSet}, uleb(local)...) }
func tee(local uint32) []byte  { return append([]byte{opLocalTee}, uleb(local)...) }
func brIf(depth uint32) []byte { return append([]byte{opBrIf}, uleb(depth)...) }

// again goes to the beginning of the innermost loop.
func again() []byte { return []byte{opBr, 0} }

// access is a load or store without alignment at the address on the stack plus
// offset.
func access(op byte, offset uint32) []byte { return append([]byte{op, 0}, uleb(offset)...) }

// call puts the arguments on the stack and calls.
func call(function uint32, arguments ...[]byte) []byte {
	return slices.Concat(slices.Concat(arguments...), []byte{opCall}, uleb(function))
}

// run is a call whose result is dropped.
func run(function uint32, arguments ...[]byte) []byte {
	return append(call(function, arguments...), opDrop)
}

func block(body ...[]byte) []byte { return nested(opBlock, body) }
func loop(body ...[]byte) []byte  { return nested(opLoop, body) }

// when runs body if the i32 on the stack is not zero.
func when(body ...[]byte) []byte { return nested(opIf, body) }

func nested(op byte, body [][]byte) []byte {
	return slices.Concat([]byte{op, noResult}, slices.Concat(body...), []byte{opEnd})
}
