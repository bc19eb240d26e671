package wasmbin

// opcode names an instruction: its opcode byte, or for the two families behind a
// prefix byte, prefix<<8 | number.
type opcode uint16

// The instructions that rewriting looks at or writes (core specification 5.4).
const (
	opUnreachable  opcode = 0x00
	opBlock        opcode = 0x02
	opLoop         opcode = 0x03
	opIf           opcode = 0x04
	opElse         opcode = 0x05
	opEnd          opcode = 0x0b
	opBr           opcode = 0x0c
	opBrIf         opcode = 0x0d
	opBrTable      opcode = 0x0e
	opReturn       opcode = 0x0f
	opCall         opcode = 0x10
	opCallIndirect opcode = 0x11
	opDrop         opcode = 0x1a
	opSelect       opcode = 0x1b
	opLocalGet     opcode = 0x20
	opLocalSet     opcode = 0x21
	opLocalTee     opcode = 0x22
	opGlobalGet    opcode = 0x23
	opGlobalSet    opcode = 0x24
	opTableSet     opcode = 0x26
	opMemorySize   opcode = 0x3f
	opMemoryGrow   opcode = 0x40
	opI32Const     opcode = 0x41
	opI64Const     opcode = 0x42
	opRefFunc      opcode = 0xd2

	opMemoryInit opcode = prefixMisc<<8 | 8
	opDataDrop   opcode = prefixMisc<<8 | 9
	opMemoryCopy opcode = prefixMisc<<8 | 10
	opMemoryFill opcode = prefixMisc<<8 | 11
	opTableInit  opcode = prefixMisc<<8 | 12
	opElemDrop   opcode = prefixMisc<<8 | 13
	opTableCopy  opcode = prefixMisc<<8 | 14
	opTableGrow  opcode = prefixMisc<<8 | 15
	opTableSize  opcode = prefixMisc<<8 | 16
	opTableFill  opcode = prefixMisc<<8 | 17
	opV128Const  opcode = prefixVector<<8 | 12

	opNop               opcode = 0x01
	opF32Const          opcode = 0x43
	opF64Const          opcode = 0x44
	opI32Load           opcode = 0x28
	opI64Load32U        opcode = 0x35
	opI32Eq             opcode = 0x46
	opI32LtU            opcode = 0x49
	opI32LeU            opcode = 0x4d
	opI32Ne             opcode = 0x47
	opI64Eqz            opcode = 0x50
	opI64Ne             opcode = 0x52
	opI64LtS            opcode = 0x53
	opI64GtU            opcode = 0x56
	opI64GeS            opcode = 0x59
	opI32Add            opcode = 0x6a
	opI32Sub            opcode = 0x6b
	opI64Add            opcode = 0x7c
	opI64Sub            opcode = 0x7d
	opI64And            opcode = 0x83
	opI64Shl            opcode = 0x86
	opI64ShrU           opcode = 0x88
	opI32WrapI64        opcode = 0xa7
	opI64ExtendI32U     opcode = 0xad
	opI32ReinterpretF32 opcode = 0xbc
	opI64ReinterpretF64 opcode = 0xbd
	opF32ReinterpretI32 opcode = 0xbe
	opF64ReinterpretI64 opcode = 0xbf
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
func shapeOf(op opcode) shape {
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
