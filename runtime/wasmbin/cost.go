package wasmbin

// cost is the weight of an instruction: about the time that it takes, in units
// of the cheapest. What only structures code, copies a value or makes one that
// another instruction consumes is free, because compilers make it so.
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
		return 1
	}
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
