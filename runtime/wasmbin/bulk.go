package wasmbin

const (
	// bulkInline is the length up to which a bulk operation stays as it is, for
	// the cost of the instruction.
	bulkInlineBytes    = 1 << 10
	bulkInlineElements = 1 << 7

	// bulkChunk is the length of the pieces that longer ones are cut into.
	bulkChunkBytes    = 256 << 10
	bulkChunkElements = 32 << 10

	// bytesPerFuelShift makes bytes fuel: one unit for 8 bytes.
	bytesPerFuelShift = 3
	pageSizeShift     = 16
)

// helper names an added function that stands in for an instruction.
type helper struct {
	op  opcode
	imm [2]int64
}

// helper returns the index of the function that stands in for in.
func (mt *meter) helper(in *instr) uint32 {
	key := helper{op: in.op, imm: in.imm}
	if shapeOf(in.op).imms[1] != immIndex {
		key.imm[1] = 0
	}
	if index, ok := mt.helperIndex[key]; ok {
		return index
	}
	index := mt.imported + 1 + uint32(len(mt.m.Funcs)+len(mt.helpers))
	mt.helperIndex[key] = index
	mt.helpers = append(mt.helpers, mt.newHelper(key))
	return index
}

func (mt *meter) newHelper(h helper) Func {
	params, results := mt.signature(h)
	f := Func{Type: mt.typeIndex(FuncType{Params: params, Results: results})}
	if h.grows() {
		f.Locals, f.Body = []Locals{{Count: 1, Type: I32}, {Count: 1, Type: I64}}, mt.growBody(h)
	} else {
		f.Locals, f.Body = []Locals{{Count: 1, Type: I32}, {Count: 1, Type: I64}}, mt.bulkBody(h)
	}
	return f
}

func (h helper) grows() bool { return h.op == opMemoryGrow || h.op == opTableGrow }

func (h helper) onTable() bool {
	return h.op == opTableGrow || h.op == opTableFill || h.op == opTableCopy || h.op == opTableInit
}

// signature is what the instruction takes and leaves (core specification 3.3.6,
// 3.3.7).
func (mt *meter) signature(h helper) (params, results []ValueType) {
	switch h.op {
	case opMemoryGrow:
		return []ValueType{I32}, []ValueType{I32}
	case opTableGrow:
		return []ValueType{mt.elementType(h.imm[0]), I32}, []ValueType{I32}
	case opTableFill:
		return []ValueType{I32, mt.elementType(h.imm[0]), I32}, nil
	default:
		return []ValueType{I32, I32, I32}, nil
	}
}

func (mt *meter) elementType(table int64) ValueType { return mt.tables[table].Element }

// bulk writes a bulk operation: as it was if it is short, and otherwise a call
// of the helper.
func (w *rewriter) bulk(in *instr) {
	w.uses.length = true
	h := helper{op: in.op, imm: in.imm}
	inline := int32(bulkInlineBytes)
	if h.onTable() {
		inline = bulkInlineElements
	}
	params, results := w.meter.signature(h)
	w.out = w.out.teeLocal(w.length).getLocal(w.length).i32(inline).op(opI32LeU)
	w.out = w.out.op(opIf, w.meter.blockType(params, results)).op(in.op, in.imm[0], in.imm[1]).op(opElse)
	w.handOver(func(c code) code { return c.call(w.meter.helper(in)) })
	w.out = w.out.end()
}

// The locals of helpers: the operands of the instruction come first.
const (
	bulkTo = iota
	bulkFrom
	bulkLength
	bulkPiece
	bulkCounter
)

// bulkBody is the code of a fill, copy or init: it traps like the instruction
// before it has written anything, and else works in pieces, each charged before.
func (mt *meter) bulkBody(h helper) Expr {
	c := mt.bulkBounds(nil, h)
	chunk := int32(bulkChunkBytes)
	if h.onTable() {
		chunk = bulkChunkElements
	}
	c = c.op(opLoop, emptyBlock)
	c = c.getLocal(bulkLength).i32(chunk).getLocal(bulkLength).i32(chunk).op(opI32LtU).op(opSelect).setLocal(bulkPiece)
	c = mt.chargeLength(c, h, bulkPiece, bulkCounter)
	c = c.getLocal(bulkLength).getLocal(bulkPiece).op(opI32Sub).setLocal(bulkLength)
	if h.op == opMemoryCopy || h.op == opTableCopy {
		c = c.getLocal(bulkTo).getLocal(bulkFrom).op(opI32LeU).op(opIf, emptyBlock)
		c = h.pieceUpwards(c).op(opElse)
		c = h.pieceDownwards(c).end()
	} else {
		c = h.pieceUpwards(c)
	}
	return Expr(c.getLocal(bulkLength).op(opBrIf, 0).end().end())
}

// pieceUpwards works on the first piece and moves on.
func (h helper) pieceUpwards(c code) code {
	c = c.getLocal(bulkTo).getLocal(bulkFrom).getLocal(bulkPiece).op(h.op, h.imm[0], h.imm[1])
	c = c.getLocal(bulkTo).getLocal(bulkPiece).op(opI32Add).setLocal(bulkTo)
	if h.op == opMemoryFill || h.op == opTableFill {
		return c // from is a value
	}
	return c.getLocal(bulkFrom).getLocal(bulkPiece).op(opI32Add).setLocal(bulkFrom)
}

// pieceDownwards works on the last piece, of which the length does not tell any
// more. Copying upwards where the source is below the destination would read
// what was just written.
func (h helper) pieceDownwards(c code) code {
	c = c.getLocal(bulkTo).getLocal(bulkLength).op(opI32Add)
	c = c.getLocal(bulkFrom).getLocal(bulkLength).op(opI32Add)
	return c.getLocal(bulkPiece).op(h.op, h.imm[0], h.imm[1])
}

// bulkBounds executes the whole instruction if it is out of bounds, so that it
// traps.
func (mt *meter) bulkBounds(c code, h helper) code {
	trap := func(c code) code {
		c = c.op(opIf, emptyBlock).getLocal(bulkTo).getLocal(bulkFrom).getLocal(bulkLength)
		return c.op(h.op, h.imm[0], h.imm[1]).end()
	}
	switch h.op {
	case opMemoryFill:
		return trap(endOf(c, bulkTo).memoryBytes().op(opI64GtU))
	case opMemoryCopy:
		c = trap(endOf(c, bulkTo).memoryBytes().op(opI64GtU))
		return trap(endOf(c, bulkFrom).memoryBytes().op(opI64GtU))
	case opTableFill:
		return trap(endOf(c, bulkTo).tableElements(h.imm[0]).op(opI64GtU))
	case opTableCopy:
		c = trap(endOf(c, bulkTo).tableElements(h.imm[0]).op(opI64GtU))
		return trap(endOf(c, bulkFrom).tableElements(h.imm[1]).op(opI64GtU))
	case opMemoryInit:
		c = trap(endOf(c, bulkTo).memoryBytes().op(opI64GtU))
	default: // opTableInit
		c = trap(endOf(c, bulkTo).tableElements(h.imm[1]).op(opI64GtU))
	}
	// The size of a segment, which may have been dropped, shows only in that an
	// empty piece at its end is in bounds.
	c = trap(endOf(c, bulkFrom).i64(1<<32 - 1).op(opI64GtU))
	return c.i32(0).getLocal(bulkFrom).getLocal(bulkLength).op(opI32Add).i32(0).op(h.op, h.imm[0], h.imm[1])
}

// endOf computes the end of an operand's range, in 64 bits.
func endOf(c code, operand uint32) code {
	c = c.getLocal(operand).op(opI64ExtendI32U)
	return c.getLocal(bulkLength).op(opI64ExtendI32U).op(opI64Add)
}

func (c code) memoryBytes() code {
	return c.op(opMemorySize).op(opI64ExtendI32U).i64(pageSizeShift).op(opI64Shl)
}

func (c code) tableElements(table int64) code {
	return c.op(opTableSize, table).op(opI64ExtendI32U)
}

// chargeLength charges the length in a local for h, and looks at the counter.
func (mt *meter) chargeLength(c code, h helper, length, counter uint32) code {
	shift := int64(fuelShift)
	switch {
	case h.op == opMemoryGrow:
		shift += pageSizeShift - bytesPerFuelShift
	case !h.onTable():
		c = c.getGlobal(mt.counter).getLocal(length).op(opI64ExtendI32U).i64(bytesPerFuelShift).op(opI64ShrU)
		return mt.takeFuel(c, shift, counter)
	}
	return mt.takeFuel(c.getGlobal(mt.counter).getLocal(length).op(opI64ExtendI32U), shift, counter)
}

// takeFuel takes from the counter, below on the stack, the number on it shifted.
func (mt *meter) takeFuel(c code, shift int64, counter uint32) code {
	c = c.i64(shift).op(opI64Shl).op(opI64Sub).teeLocal(counter).setGlobal(mt.counter)
	c = c.getLocal(counter).i64(0).op(opI64LtS).op(opIf, emptyBlock)
	return c.getLocal(counter).call(mt.refuel).setGlobal(mt.counter).end()
}

// growBody is the code of a grow: it charges what was added.
func (mt *meter) growBody(h helper) Expr {
	params, _ := mt.signature(h)
	n := uint32(len(params))
	delta, result, counter := n-1, n, n+1
	var c code
	for i := range n {
		c = c.getLocal(i)
	}
	c = c.op(h.op, h.imm[0]).teeLocal(result).i32(-1).op(opI32Ne).op(opIf, emptyBlock)
	c = mt.chargeLength(c, h, delta, counter).end()
	return Expr(c.getLocal(result).end())
}
