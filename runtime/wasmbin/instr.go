package wasmbin

import "encoding/binary"

// Instr is one instruction. The meaning of Imm follows the order of the
// immediates in the binary format: index; alignment, offset, lane; type,
// table; constant (f32 and f64 as bits).
type Instr struct {
	Op     Op
	Imm    [3]int64
	Labels []uint32 // br_table without its default, which is Imm[1]
	Bytes  []byte   // the 16 bytes of v128.const and shuffle, the types of select
}

// emptyBlock is the block type of a block without parameters and results
// (core specification 5.4.1).
const emptyBlock = -64

// next reads an instruction into in. Labels are valid until the next call with
// the same in; Bytes alias the input.
func (in *Instr) next(r *reader) {
	start := r.pos
	in.Op = Op(r.byte("instruction"))
	if in.Op == prefixMisc || in.Op == prefixVector {
		number := r.u32("instruction")
		if number > 0xff {
			r.failAt(start, "instruction %#x %#x does not exist", uint16(in.Op), number)
			return
		}
		in.Op = in.Op<<8 | Op(number)
	}
	shape := shapeOf(in.Op)
	if !shape.defined {
		r.failAt(start, "instruction %#x does not exist", uint16(in.Op))
		return
	}
	for i, imm := range shape.imms {
		if imm == immNone {
			return
		}
		in.Imm[i] = in.read(r, imm)
	}
}

func (in *Instr) read(r *reader, imm immediate) int64 {
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
			return int64(binary.LittleEndian.Uint64(b)) //nolint:gosec // bits, not a number
		}
	case imm16Bytes:
		in.Bytes = r.take(16, "128-bit constant")
	case immTypes:
		in.readTypes(r)
	case immLabels:
		in.readLabels(r)
	case immNone:
	}
	return 0
}

func (in *Instr) readTypes(r *reader) {
	n := r.count("types")
	start := r.pos
	for range n {
		readValueType(r)
	}
	if !r.failed() {
		in.Bytes = r.buf[start:r.pos]
	}
}

func (in *Instr) readLabels(r *reader) {
	in.Labels = in.Labels[:0]
	for range r.count("labels") {
		in.Labels = append(in.Labels, r.u32("label"))
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
func appendInstr(b []byte, in *Instr) []byte {
	if prefix := in.Op >> 8; prefix != 0 {
		b = appendUnsigned(append(b, byte(prefix)), uint32(in.Op&0xff))
	} else {
		b = append(b, byte(in.Op))
	}
	for i, imm := range shapeOf(in.Op).imms {
		if imm == immNone {
			return b
		}
		b = in.append(b, imm, in.Imm[i])
	}
	return b
}

func (in *Instr) append(b []byte, imm immediate, v int64) []byte {
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
		return append(b, in.Bytes...)
	case immTypes:
		return append(appendUnsigned(b, len(in.Bytes)), in.Bytes...)
	case immLabels:
		return appendVector(b, in.Labels, appendUnsigned[uint32])
	case immNone:
	}
	return b
}
