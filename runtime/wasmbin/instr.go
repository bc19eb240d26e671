package wasmbin

import "encoding/binary"

// instruction is one instruction. The meaning of imm follows the order of the
// immediates in the binary format: index; alignment, offset, lane; type,
// table; constant (f32 and f64 as bits).
type instruction struct {
	op     opcode
	imm    [3]int64
	labels []uint32 // br_table without its default, which is imm[1]
	bytes  []byte   // the 16 bytes of v128.const and shuffle, the types of select
}

// emptyBlock is the block type of a block without parameters and results
// (core specification 5.4.1).
const emptyBlock = -64

// next reads an instruction into in. labels are valid until the next call with
// the same in; bytes alias the input.
func (in *instruction) next(r *reader) {
	start := r.pos
	in.op = opcode(r.byte("instruction"))
	if in.op == prefixMisc || in.op == prefixVector {
		number := r.u32("instruction")
		if number > 0xff {
			r.failAt(start, "instruction %#x %#x does not exist", uint16(in.op), number)
			return
		}
		in.op = in.op<<8 | opcode(number)
	}
	shape := shapeOf(in.op)
	if !shape.defined {
		r.failAt(start, "instruction %#x does not exist", uint16(in.op))
		return
	}
	for i, imm := range shape.imms {
		if imm == immNone {
			return
		}
		in.imm[i] = in.read(r, imm)
	}
}

func (in *instruction) read(r *reader, imm immediate) int64 {
	start := r.pos
	switch imm {
	case immIndex:
		return int64(r.u32("index"))
	case immI32:
		return r.signed(32, "i32 constant")
	case immI64:
		return r.signed(64, "i64 constant")
	case immBlockType:
		return readBlockType(r)
	case immZero:
		if b := r.byte("memory"); b != 0 {
			r.failAt(start, "memory %d: there is only memory 0", b)
		}
	case immLane:
		return int64(r.byte("lane"))
	case immReference:
		return int64(readReferenceType(r))
	case immF32:
		if b := r.take(4, "f32 constant"); b != nil {
			return int64(binary.LittleEndian.Uint32(b))
		}
	case immF64:
		if b := r.take(8, "f64 constant"); b != nil {
			return int64(binary.LittleEndian.Uint64(b))
		}
	case imm16Bytes:
		in.bytes = r.take(16, "128-bit constant")
	case immTypes:
		in.readTypes(r)
	case immLabels:
		in.readLabels(r)
	case immNone:
	}
	return 0
}

func (in *instruction) readTypes(r *reader) {
	n := r.count("types")
	start := r.pos
	for range n {
		readValueType(r)
	}
	if !r.failed() {
		in.bytes = r.buf[start:r.pos]
	}
}

func (in *instruction) readLabels(r *reader) {
	in.labels = in.labels[:0]
	for range r.count("labels") {
		in.labels = append(in.labels, r.u32("label"))
	}
}

// readBlockType reads a type index, or as a negative number a value type or
// emptyBlock.
func readBlockType(r *reader) int64 {
	start := r.pos
	t := r.signed(33, "block type")
	if t < emptyBlock || t < 0 && t != emptyBlock && !ValueType(t&0x7f).valid() {
		r.failAt(start, "block type: %#x is none", t&0x7f)
	}
	return t
}

// appendInstr appends the shortest encoding of in.
func appendInstr(b []byte, in *instruction) []byte {
	if prefix := in.op >> 8; prefix != 0 {
		b = appendUnsigned(append(b, byte(prefix)), uint32(in.op&0xff))
	} else {
		b = append(b, byte(in.op))
	}
	for i, imm := range shapeOf(in.op).imms {
		if imm == immNone {
			return b
		}
		b = in.append(b, imm, in.imm[i])
	}
	return b
}

func (in *instruction) append(b []byte, imm immediate, v int64) []byte {
	switch imm {
	case immIndex:
		return appendUnsigned(b, uint32(v))
	case immI32, immI64, immBlockType:
		return appendSigned(b, v)
	case immZero, immLane, immReference:
		return append(b, byte(v))
	case immF32:
		return binary.LittleEndian.AppendUint32(b, uint32(v))
	case immF64:
		return binary.LittleEndian.AppendUint64(b, uint64(v))
	case imm16Bytes:
		return append(b, in.bytes...)
	case immTypes:
		return append(appendUnsigned(b, len(in.bytes)), in.bytes...)
	case immLabels:
		return appendVector(b, in.labels, appendUnsigned[uint32])
	case immNone:
	}
	return b
}
