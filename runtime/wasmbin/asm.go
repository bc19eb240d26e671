package wasmbin

// code is an expression being written.
type code []byte

// op appends an instruction whose immediates are numbers.
func (c code) op(op opcode, imm ...int64) code {
	in := instruction{op: op}
	copy(in.imm[:], imm)
	return appendInstr(c, &in)
}

func (c code) getLocal(i uint32) code  { return c.op(opLocalGet, int64(i)) }
func (c code) setLocal(i uint32) code  { return c.op(opLocalSet, int64(i)) }
func (c code) teeLocal(i uint32) code  { return c.op(opLocalTee, int64(i)) }
func (c code) getGlobal(i uint32) code { return c.op(opGlobalGet, int64(i)) }
func (c code) setGlobal(i uint32) code { return c.op(opGlobalSet, int64(i)) }
func (c code) call(i uint32) code      { return c.op(opCall, int64(i)) }
func (c code) i32(v int32) code        { return c.op(opI32Const, int64(v)) }
func (c code) i64(v int64) code        { return c.op(opI64Const, v) }
func (c code) end() code               { return c.op(opEnd) }
