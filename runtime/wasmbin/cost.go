package wasmbin

// cost is the weight of an instruction: about the time that it takes, in units
// of the cheapest. What only structures code, copies a value or makes one that
// another instruction consumes is free, because compilers make it so. Loads are
// dearer than they usually are because one that misses all caches takes a
// hundred times as long, and a guest may do nothing else.
func (op opcode) cost() int {
	switch op {
	case opNop, opBlock, opLoop, opElse, opEnd, opDrop, opLocalGet,
		opI32Const, opI64Const, opF32Const, opF64Const, opV128Const:
		return 0
	case opCall:
		return 4
	case opCallIndirect:
		return 8
	case opMemoryFill, opMemoryCopy, opMemoryInit, opTableFill, opTableCopy, opTableInit:
		return 16
	case opMemoryGrow, opTableGrow, opRefFunc: // they call the host
		return 64
	default:
		if op.loads() {
			return 4
		}
		return 1
	}
}

// loads reports whether op reads memory.
func (op opcode) loads() bool {
	const vector = prefixVector << 8
	return opI32Load <= op && op <= opI64Load32U ||
		vector <= op && op <= vector|0x0a || // v128.load … v128.load64_splat
		vector|0x54 <= op && op <= vector|0x57 || // v128.load8_lane … v128.load64_lane
		vector|0x5c <= op && op <= vector|0x5d // v128.load32_zero, v128.load64_zero
}

// endsSegment reports whether straight-line code ends with op.
func (op opcode) endsSegment() bool {
	switch op {
	case opBlock, opLoop, opIf, opElse, opEnd, opBr, opBrIf, opBrTable, opReturn, opUnreachable:
		return true
	default:
		return false
	}
}
