package wasmbin

// Modules assembled by hand, for tests outside the package. Each exports a
// function run(n i32) i32.

// Instructions that only tests write.
const (
	opI32Load8U  opcode = 0x2d
	opF64Load    opcode = 0x2b
	opF64Store   opcode = 0x39
	opI32Store8  opcode = 0x3a
	opI32Store   opcode = 0x36
	opI32Eqz     opcode = 0x45
	opI32GeU     opcode = 0x4f
	opI32Mul     opcode = 0x6c
	opI32And     opcode = 0x71
	opI32Xor     opcode = 0x73
	opI32ShrU    opcode = 0x76
	opF64Add     opcode = 0xa0
	opF64Mul     opcode = 0xa2
	opRefNull    opcode = 0xd0
	opRefIsNull  opcode = 0xd1
	opTableGet   opcode = 0x25
	opI32x4Add   opcode = prefixVector<<8 | 0xae
	opI32x4Splat opcode = prefixVector<<8 | 0x11
	opI32x4Lane  opcode = prefixVector<<8 | 0x1b
)

var (
	unary   = FuncType{Params: []ValueType{I32}, Results: []ValueType{I32}}
	ternary = FuncType{Params: []ValueType{I32, I32, I32}}
)

// Kernel is a module that computes.
type Kernel struct {
	Name string
	Wasm []byte
	N    uint64 // what run is called with to work some milliseconds
}

// Kernels returns small computations.
func Kernels() []Kernel {
	return []Kernel{
		{"loop", runner(loopBody(), 1, I32), 5_000_000},
		{"sieve", runner(sieveBody(), 3, I32), 1_000_000},
		{"matmul", matmul(), 120},
		{"fib", runner(fibBody(), 0, I32), 28},
	}
}

// runner makes a module of one function with n locals and 4 MiB of memory.
func runner(body code, n uint32, t ValueType) []byte {
	return module(64, Func{Locals: []Locals{{Count: n, Type: t}}, Body: Expr(body)}).Encode()
}

// module makes a module of functions of type unary that exports the first, with
// a memory.
func module(pages uint32, funcs ...Func) *Module {
	return &Module{
		Types:    []FuncType{unary, ternary},
		Funcs:    funcs,
		Memories: []Limits{{Min: pages}},
		Exports:  []Export{{Name: "run", Kind: ExternFunc}, {Name: "memory", Kind: ExternMemory}},
	}
}

// loopBody: s = (s*1664525 + n) ^ s>>3, n times.
func loopBody() code {
	return code(nil).op(opLoop, emptyBlock).
		getLocal(1).i32(1664525).op(opI32Mul).getLocal(0).op(opI32Add).
		getLocal(1).i32(3).op(opI32ShrU).op(opI32Xor).setLocal(1).
		getLocal(0).i32(1).op(opI32Sub).teeLocal(0).op(opBrIf, 0).
		end().getLocal(1).end()
}

// sieveBody counts the primes below n. Locals: n, i, j, count.
func sieveBody() code {
	return code(nil).i32(0).i32(0).getLocal(0).op(opMemoryFill).i32(2).setLocal(1).
		op(opBlock, emptyBlock).op(opLoop, emptyBlock).
		getLocal(1).getLocal(0).op(opI32GeU).op(opBrIf, 1).
		op(opBlock, emptyBlock).getLocal(1).op(opI32Load8U).op(opBrIf, 0).
		getLocal(3).i32(1).op(opI32Add).setLocal(3).
		getLocal(1).getLocal(1).op(opI32Add).setLocal(2).
		op(opBlock, emptyBlock).op(opLoop, emptyBlock).
		getLocal(2).getLocal(0).op(opI32GeU).op(opBrIf, 1).
		getLocal(2).i32(1).op(opI32Store8).
		getLocal(2).getLocal(1).op(opI32Add).setLocal(2).
		op(opBr, 0).end().end().
		end().
		getLocal(1).i32(1).op(opI32Add).setLocal(1).
		op(opBr, 0).end().end().getLocal(3).end()
}

// matmul multiplies two n×n matrices of f64. Locals: n, i, j, k, a, b, sum.
func matmul() []byte {
	step := func(c code, local uint32) code { return c.getLocal(local).i32(1).op(opI32Add).teeLocal(local) }
	body := code(nil).op(opLoop, emptyBlock).
		i32(0).setLocal(2).op(opLoop, emptyBlock).
		i32(0).setLocal(3).op(opF64Const, 0).setLocal(6).
		getLocal(1).getLocal(0).op(opI32Mul).i32(8).op(opI32Mul).setLocal(4).
		getLocal(2).i32(8).op(opI32Mul).setLocal(5).
		op(opLoop, emptyBlock).
		getLocal(6).getLocal(4).op(opF64Load, 3, 0).getLocal(5).op(opF64Load, 3, 1<<20).
		op(opF64Mul).op(opF64Add).setLocal(6).
		getLocal(4).i32(8).op(opI32Add).setLocal(4).
		getLocal(5).getLocal(0).i32(8).op(opI32Mul).op(opI32Add).setLocal(5)
	body = step(body, 3).getLocal(0).op(opI32LtU).op(opBrIf, 0).end().
		getLocal(1).getLocal(0).op(opI32Mul).getLocal(2).op(opI32Add).i32(8).op(opI32Mul).
		getLocal(6).op(opF64Store, 3, 2<<20)
	body = step(body, 2).getLocal(0).op(opI32LtU).op(opBrIf, 0).end()
	body = step(body, 1).getLocal(0).op(opI32LtU).op(opBrIf, 0).end().i32(0).end()
	f := Func{Locals: []Locals{{Count: 5, Type: I32}, {Count: 1, Type: F64}}, Body: Expr(body)}
	return module(64, f).Encode()
}

func fibBody() code {
	return code(nil).getLocal(0).i32(2).op(opI32LtU).op(opIf, emptyBlock).getLocal(0).op(opReturn).end().
		getLocal(0).i32(1).op(opI32Sub).call(0).
		getLocal(0).i32(2).op(opI32Sub).call(0).op(opI32Add).end()
}

// Endless returns modules whose run does not end by itself in reasonable time.
func Endless() []Kernel {
	return []Kernel{
		{Name: "tight loop", Wasm: runner(code(nil).op(opLoop, emptyBlock).op(opBr, 0).end().i32(0).end(), 0, I32)},
		{Name: "nested loops", Wasm: nestedLoops()},
		{Name: "call tree without loops", Wasm: callTree(), N: 60},
		{Name: "state machine", Wasm: stateMachine()},
		{Name: "SIMD loop", Wasm: simdLoop()},
		{Name: "pointer chase", Wasm: chase()},
		{Name: "fills of memory", Wasm: bulkLoop(code(nil).i32(0).i32(7).i32(hugeBytes).op(opMemoryFill))},
		{Name: "copies of memory", Wasm: bulkLoop(code(nil).i32(hugeBytes / 2).i32(8).i32(hugeBytes / 2).op(opMemoryCopy))},
		{Name: "fills of a table", Wasm: bulkLoop(code(nil).i32(0).op(opRefNull, int64(FuncRef)).i32(hugeElements).op(opTableFill, 0))},
		{Name: "copies of a table", Wasm: bulkLoop(code(nil).i32(0).i32(1).i32(hugeElements-1).op(opTableCopy, 0, 0))},
	}
}

const (
	hugeBytes    = 128 << 20
	hugeElements = 8 << 20
)

func nestedLoops() []byte {
	c := code(nil).op(opLoop, emptyBlock).i32(100).setLocal(1).
		op(opLoop, emptyBlock).i32(100).setLocal(2).
		op(opLoop, emptyBlock).getLocal(2).i32(1).op(opI32Sub).teeLocal(2).op(opBrIf, 0).end().
		getLocal(1).i32(1).op(opI32Sub).teeLocal(1).op(opBrIf, 0).end().
		op(opBr, 0).end().i32(0).end()
	return runner(c, 2, I32)
}

// callTree: f(n) = n == 0 ? 1 : f(n-1) + f(n-1).
func callTree() []byte {
	c := code(nil).getLocal(0).op(opI32Eqz).op(opIf, emptyBlock).i32(1).op(opReturn).end().
		getLocal(0).i32(1).op(opI32Sub).call(0).getLocal(0).i32(1).op(opI32Sub).call(0).op(opI32Add).end()
	return runner(c, 0, I32)
}

// stateMachine goes round four states as compilers without structured control
// flow do.
func stateMachine() []byte {
	c := code(nil).op(opLoop, emptyBlock)
	for range 4 {
		c = c.op(opBlock, emptyBlock)
	}
	c = append(c.getLocal(1), 0x0e, 3, 0, 1, 2, 3).end() // br_table 0 1 2 3
	for state := range 3 {
		c = c.i32(int32(state)+1).setLocal(1).op(opBr, int64(3-state)).end()
	}
	c = c.i32(0).setLocal(1).op(opBr, 0).end().i32(0).end()
	return runner(c, 1, I32)
}

// chase follows pointers from one line of a memory of 64 MiB to another, after it
// has written them there in an order that no processor foresees.
func chase() []byte {
	const lines = 1 << 20
	next := func(c code) code { // the line after local 1: a full cycle (Hull and Dobell)
		return c.getLocal(1).i32(1_664_525).op(opI32Mul).i32(1_013_904_223).op(opI32Add).i32(lines - 1).op(opI32And)
	}
	c := next(code(nil).op(opLoop, emptyBlock)).setLocal(2).
		getLocal(1).i32(64).op(opI32Mul).getLocal(2).i32(64).op(opI32Mul).op(opI32Store, 2, 0).
		getLocal(2).teeLocal(1).op(opBrIf, 0).end().
		op(opLoop, emptyBlock).getLocal(0).op(opI32Load, 2, 0).setLocal(0).op(opBr, 0).end().i32(0).end()
	return module(lines*64>>pageSizeShift, Func{Locals: []Locals{{Count: 2, Type: I32}}, Body: Expr(c)}).Encode()
}

func simdLoop() []byte {
	c := code(nil).op(opLoop, emptyBlock).
		getLocal(1).getLocal(0).op(opI32x4Splat).op(opI32x4Add).teeLocal(1).op(opI32x4Lane, 1).setLocal(0).
		op(opBr, 0).end().i32(0).end()
	return runner(c, 1, V128)
}

// bulkLoop repeats a bulk operation on a memory of hugeBytes and a table of
// hugeElements.
func bulkLoop(operation code) []byte {
	c := append(code(nil).op(opLoop, emptyBlock), operation...).op(opBr, 0).end().i32(0).end()
	m := module(hugeBytes>>pageSizeShift, Func{Body: Expr(c)})
	m.Tables = []TableType{{Element: FuncRef, Limits: Limits{Min: hugeElements}}}
	return m.Encode()
}

// Recursions returns modules whose run nests calls n deep and returns n.
func Recursions() []Kernel {
	// f(n) = n == 0 ? 0 : 1 + f(n-1), and the same with a loop, through a table
	// back and forth, and with the loop after the call.
	stop := code(nil).getLocal(0).op(opI32Eqz).op(opIf, emptyBlock).i32(0).op(opReturn).end()
	less := func(c code) code { return c.getLocal(0).i32(1).op(opI32Sub) }
	again := func(c code) code { return c.i32(1).op(opI32Add) }
	once := code(nil).op(opLoop, emptyBlock).end()

	direct := again(less(append(code(nil), stop...)).call(0)).end()
	loop := again(less(append(append(code(nil), once...), stop...)).call(0)).end()
	after := append(again(less(append(code(nil), stop...)).call(0)), once...).end()
	to := func(i int32) Func {
		return Func{Body: Expr(again(less(append(code(nil), stop...)).i32(i).op(opCallIndirect, 0, 0)).end())}
	}
	table := module(1, to(1), to(0))
	table.Tables = []TableType{{Element: FuncRef, Limits: Limits{Min: 2}}}
	table.Elements = []Element{{Offset: Expr(code(nil).i32(0).end()), Funcs: []uint32{0, 1}}}
	return []Kernel{
		{Name: "direct", Wasm: module(1, Func{Body: Expr(direct)}).Encode()},
		{Name: "after a loop", Wasm: module(1, Func{Body: Expr(loop)}).Encode()},
		{Name: "before a loop", Wasm: module(1, Func{Body: Expr(after)}).Encode()},
		{Name: "through a table", Wasm: table.Encode()},
	}
}

// Bulk returns a module with the exports fill, copy and init, which pass their
// operands to memory instructions on a memory of 16 pages and a passive segment
// of 600 KiB, and tfill, tcopy and tinit for a table of 100,000 elements and a
// passive segment of 70,000; isnull(i) looks at the table, and drop drops the
// segments. tfill fills with a function for an odd value and null for an even.
func Bulk() []byte {
	operands := code(nil).getLocal(0).getLocal(1).getLocal(2)
	with := func(op opcode, imm ...int64) Func {
		return Func{Type: 1, Body: Expr(append(code(nil), operands...).op(op, imm...).end())}
	}
	tfill := code(nil).getLocal(0).op(opRefNull, int64(FuncRef)).op(opRefFunc, 0).
		getLocal(1).i32(1).op(opI32And).op(opI32Eqz)
	tfill = append(tfill, 0x1c, 1, byte(FuncRef)) // select with a type
	m := module(16,
		with(opMemoryFill), with(opMemoryCopy, 0, 0), with(opMemoryInit, 0, 0),
		Func{Type: 1, Body: Expr(tfill.getLocal(2).op(opTableFill, 0).end())},
		with(opTableCopy, 0, 0), with(opTableInit, 0, 0),
		Func{Type: 0, Body: Expr(code(nil).getLocal(0).op(opTableGet, 0).op(opRefIsNull).end())},
		Func{Type: 1, Body: Expr(code(nil).op(opDataDrop, 0).op(opElemDrop, 0).end())},
	)
	m.Exports = m.Exports[1:]
	for i, name := range []string{"fill", "copy", "init", "tfill", "tcopy", "tinit", "isnull", "drop"} {
		m.Exports = append(m.Exports, Export{Name: name, Kind: ExternFunc, Index: uint32(i)})
	}
	m.Tables = []TableType{{Element: FuncRef, Limits: Limits{Min: 100_000}}}
	m.DataCount = true
	segment := make([]byte, 600<<10)
	for i := range segment {
		segment[i] = byte(i % 251)
	}
	m.Datas = []Data{{Form: DataPassive, Init: segment}}
	e := Element{Form: ElementNotActive | ElementHasExprs, Type: FuncRef}
	for i := range 70_000 {
		x := code(nil).op(opRefFunc, 0)
		if i%3 == 0 {
			x = code(nil).op(opRefNull, int64(FuncRef))
		}
		e.Exprs = append(e.Exprs, Expr(x.end()))
	}
	m.Elements = []Element{e}
	return m.Encode()
}

// Carry returns a module whose run mixes, n times in a loop with parameters and
// several results, a local of every type.
func Carry() []byte {
	const (
		opI64ExtendI32S opcode = 0xac
		opF32ConvertI32 opcode = 0xb2
		opF64PromoteF32 opcode = 0xbb
		opF64ConvertI64 opcode = 0xb9
		opF32Add        opcode = 0x92
		opI32TruncSat   opcode = prefixMisc<<8 | 2
	)
	// Locals: n, i32, i64, f32, f64, v128; on the stack two i32 that swap.
	c := code(nil).i32(5).i32(9).op(opLoop, 2).
		setLocal(6).setLocal(7).
		getLocal(1).getLocal(0).op(opI32Add).getLocal(6).op(opI32Xor).setLocal(1).
		getLocal(2).getLocal(1).op(opI64ExtendI32S).op(opI64Sub).setLocal(2).
		getLocal(3).getLocal(1).op(opF32ConvertI32).op(opF32Add).setLocal(3).
		getLocal(4).getLocal(3).op(opF64PromoteF32).op(opF64Add).getLocal(2).op(opF64ConvertI64).op(opF64Add).setLocal(4).
		getLocal(5).getLocal(1).op(opI32x4Splat).op(opI32x4Add).setLocal(5).
		getLocal(6).getLocal(7).getLocal(1).op(opI32Add).
		getLocal(0).i32(1).op(opI32Sub).teeLocal(0).op(opBrIf, 0).end().
		op(opI32Xor).getLocal(1).op(opI32Xor).getLocal(4).op(opI32TruncSat).op(opI32Xor).
		getLocal(5).op(opI32x4Lane, 2).op(opI32Xor).end()
	m := module(1, Func{Locals: []Locals{
		{Count: 1, Type: I32},
		{Count: 1, Type: I64},
		{Count: 1, Type: F32},
		{Count: 1, Type: F64},
		{Count: 1, Type: V128},
		{Count: 2, Type: I32},
	}, Body: Expr(c)})
	m.Types = append(m.Types, FuncType{Params: []ValueType{I32, I32}, Results: []ValueType{I32, I32}})
	return m.Encode()
}
