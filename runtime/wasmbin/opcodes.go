package wasmbin

// Op names an instruction: its opcode byte, or for the two families behind a
// prefix byte, prefix<<8 | number.
type Op uint16

// The instructions that rewriting looks at or writes (core specification 5.4).
const (
	OpUnreachable  Op = 0x00
	OpBlock        Op = 0x02
	OpLoop         Op = 0x03
	OpIf           Op = 0x04
	OpElse         Op = 0x05
	OpEnd          Op = 0x0b
	OpBr           Op = 0x0c
	OpBrIf         Op = 0x0d
	OpBrTable      Op = 0x0e
	OpReturn       Op = 0x0f
	OpCall         Op = 0x10
	OpCallIndirect Op = 0x11
	OpDrop         Op = 0x1a
	OpSelect       Op = 0x1b
	OpLocalGet     Op = 0x20
	OpLocalSet     Op = 0x21
	OpLocalTee     Op = 0x22
	OpGlobalGet    Op = 0x23
	OpGlobalSet    Op = 0x24
	OpTableGet     Op = 0x25
	OpTableSet     Op = 0x26
	OpI32Load      Op = 0x28
	OpI32Store     Op = 0x36
	OpMemorySize   Op = 0x3f
	OpMemoryGrow   Op = 0x40
	OpI32Const     Op = 0x41
	OpI64Const     Op = 0x42
	OpI32Eqz       Op = 0x45
	OpI32Eq        Op = 0x46
	OpI32Ne        Op = 0x47
	OpI32LtS       Op = 0x48
	OpI32LtU       Op = 0x49
	OpI32GtU       Op = 0x4b
	OpI32LeU       Op = 0x4d
	OpI64LtS       Op = 0x53
	OpI64GtU       Op = 0x56
	OpI32Add       Op = 0x6a
	OpI32Sub       Op = 0x6b
	OpI32Mul       Op = 0x6c
	OpI32DivS      Op = 0x6d
	OpI32RemU      Op = 0x70
	OpI64Add       Op = 0x7c
	OpI64Sub       Op = 0x7d
	OpI64Mul       Op = 0x7e
	OpI64DivS      Op = 0x7f
	OpI64RemU      Op = 0x82
	OpI64Shl       Op = 0x86
	OpI64Or        Op = 0x84
	OpI32WrapI64   Op = 0xa7
	OpI64ExtendU   Op = 0xad
	OpRefNull      Op = 0xd0
	OpRefFunc      Op = 0xd2

	OpMemoryInit Op = prefixMisc<<8 | 8
	OpDataDrop   Op = prefixMisc<<8 | 9
	OpMemoryCopy Op = prefixMisc<<8 | 10
	OpMemoryFill Op = prefixMisc<<8 | 11
	OpTableInit  Op = prefixMisc<<8 | 12
	OpElemDrop   Op = prefixMisc<<8 | 13
	OpTableCopy  Op = prefixMisc<<8 | 14
	OpTableGrow  Op = prefixMisc<<8 | 15
	OpTableSize  Op = prefixMisc<<8 | 16
	OpTableFill  Op = prefixMisc<<8 | 17
	OpV128Const  Op = prefixVector<<8 | 12
)

const (
	prefixMisc   = 0xfc // saturating truncation, bulk memory, tables
	prefixVector = 0xfd // SIMD
)

// immediate is the form of one thing that follows an opcode.
type immediate byte

const (
	immNone      immediate = iota
	immBlockType           // a signed 33-bit integer
	immIndex               // an unsigned 32-bit integer: label, function, local, …
	immZero                // a byte that must be zero: the index of the only memory
	immI32                 // a signed 32-bit integer
	immI64                 // a signed 64-bit integer
	immF32                 // four bytes
	immF64                 // eight bytes
	immLane                // a byte: the number of a lane
	immReference           // a reference type
	immLabels              // the labels of br_table; the default is a further index
	immTypes               // the types of select
	imm16Bytes             // v128.const and the lanes of shuffle
)

// A shape is the sequence of immediates of an instruction. Its first element
// is undefined for opcodes that do not exist.
type shape struct {
	defined bool
	imms    [3]immediate
}

// span is a run of opcodes that share a shape.
type span struct {
	first, last byte
	imms        [3]immediate
}

var (
	plain  = [3]immediate{}
	index  = [3]immediate{immIndex}
	indexs = [3]immediate{immIndex, immIndex}
	memory = [3]immediate{immIndex, immIndex} // alignment, offset
)

// baseShapes are the instructions of one byte (core specification 5.4.1–5.4.7).
var baseShapes = shapesOf([]span{
	{0x00, 0x01, plain},                             // unreachable, nop
	{0x02, 0x04, [3]immediate{immBlockType}},        // block, loop, if
	{0x05, 0x05, plain},                             // else
	{0x0b, 0x0b, plain},                             // end
	{0x0c, 0x0d, index},                             // br, br_if
	{0x0e, 0x0e, [3]immediate{immLabels, immIndex}}, // br_table
	{0x0f, 0x0f, plain},                             // return
	{0x10, 0x10, index},                             // call
	{0x11, 0x11, indexs},                            // call_indirect: type, table
	{0x1a, 0x1b, plain},                             // drop, select
	{0x1c, 0x1c, [3]immediate{immTypes}},            // select with types
	{0x20, 0x26, index},                             // local.get … table.set
	{0x28, 0x3e, memory},                            // i32.load … i64.store32
	{0x3f, 0x40, [3]immediate{immZero}},             // memory.size, memory.grow
	{0x41, 0x41, [3]immediate{immI32}},              // i32.const
	{0x42, 0x42, [3]immediate{immI64}},              // i64.const
	{0x43, 0x43, [3]immediate{immF32}},              // f32.const
	{0x44, 0x44, [3]immediate{immF64}},              // f64.const
	{0x45, 0xc4, plain},                             // i32.eqz … i64.extend32_s
	{0xd0, 0xd0, [3]immediate{immReference}},        // ref.null
	{0xd1, 0xd1, plain},                             // ref.is_null
	{0xd2, 0xd2, index},                             // ref.func
})

// miscShapes are the instructions behind prefix 0xfc (core specification
// 5.4.4–5.4.7).
var miscShapes = shapesOf([]span{
	{0, 7, plain},                            // i32.trunc_sat_f32_s … i64.trunc_sat_f64_u
	{8, 8, [3]immediate{immIndex, immZero}},  // memory.init
	{9, 9, index},                            // data.drop
	{10, 10, [3]immediate{immZero, immZero}}, // memory.copy
	{11, 11, [3]immediate{immZero}},          // memory.fill
	{12, 12, indexs},                         // table.init: segment, table
	{13, 13, index},                          // elem.drop
	{14, 14, indexs},                         // table.copy: to, from
	{15, 17, index},                          // table.grow, table.size, table.fill
})

// vectorShapes are the instructions behind prefix 0xfd (core specification
// 5.4.8).
var vectorShapes = shapesOf([]span{
	{0x00, 0x0b, memory},                                    // v128.load … v128.store
	{0x0c, 0x0d, [3]immediate{imm16Bytes}},                  // v128.const, i8x16.shuffle
	{0x0e, 0x14, plain},                                     // i8x16.swizzle … f64x2.splat
	{0x15, 0x22, [3]immediate{immLane}},                     // i8x16.extract_lane_s … f64x2.replace_lane
	{0x23, 0x53, plain},                                     // i8x16.eq … v128.any_true
	{0x54, 0x5b, [3]immediate{immIndex, immIndex, immLane}}, // v128.load8_lane … v128.store64_lane
	{0x5c, 0x5d, memory},                                    // v128.load32_zero, v128.load64_zero
	{0x5e, 0x99, plain},                                     // f32x4.demote_f64x2_zero … i16x8.max_u
	{0x9b, 0xa1, plain},                                     // i16x8.avgr_u … i32x4.neg
	{0xa3, 0xa4, plain},                                     // i32x4.all_true, i32x4.bitmask
	{0xa7, 0xae, plain},                                     // i32x4.extend_low_i16x8_s … i32x4.add
	{0xb1, 0xb1, plain},                                     // i32x4.sub
	{0xb5, 0xba, plain},                                     // i32x4.mul … i32x4.dot_i16x8_s
	{0xbc, 0xc1, plain},                                     // i32x4.extmul_low_i16x8_s … i64x2.neg
	{0xc3, 0xc4, plain},                                     // i64x2.all_true, i64x2.bitmask
	{0xc7, 0xce, plain},                                     // i64x2.extend_low_i32x4_s … i64x2.add
	{0xd1, 0xd1, plain},                                     // i64x2.sub
	{0xd5, 0xe1, plain},                                     // i64x2.mul … f32x4.neg
	{0xe3, 0xed, plain},                                     // f32x4.sqrt … f64x2.neg
	{0xef, 0xff, plain},                                     // f64x2.sqrt … f64x2.convert_low_i32x4_u
})

func shapesOf(spans []span) (shapes [256]shape) {
	for _, s := range spans {
		for op := int(s.first); op <= int(s.last); op++ {
			shapes[op] = shape{defined: true, imms: s.imms}
		}
	}
	return shapes
}

// shapeOf returns the shape of op.
func shapeOf(op Op) shape {
	switch op >> 8 {
	case 0:
		return baseShapes[op]
	case prefixMisc:
		return miscShapes[op&0xff]
	case prefixVector:
		return vectorShapes[op&0xff]
	default:
		return shape{}
	}
}
