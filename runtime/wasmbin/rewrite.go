package wasmbin

import "sort"

// rewriter writes the metered code of one function.
//
// The counter is a global. A function without loops charges it there, before it
// calls. A function with loops takes it into a local, because engines keep
// locals in registers, and hands it over where it calls and where it returns; its
// body becomes a block, whose end is the one place where it returns.
type rewriter struct {
	*planner
	f     *Func
	out   code
	taken uint32 // how much of the old body is in out
	rest  []point

	counter uint32 // local for the counter
	length  uint32 // local for the length of a bulk operation
	uses    struct{ counter, length bool }
	locals  localTypes

	open   int      // blocks open in out
	blocks []opened // blocks open in the old body, and the one around it
}

// opened is a block of the old body.
type opened struct {
	label int    // of the block in the new body, counted from outside
	loop  *point // what a loop charges
}

func newRewriter(mt *meter, p *planner, f *Func) *rewriter {
	t := &mt.m.Types[f.Type]
	n := uint32(f.localCount(t))
	return &rewriter{
		planner: p, f: f,
		out:     make(code, 0, len(f.Body)+len(f.Body)/4+64),
		counter: n, length: n + 1,
		locals: newLocalTypes(t, f),
	}
}

// function replaces the code of the function.
func (w *rewriter) function() {
	if w.facts.loops {
		w.enter()
	}
	w.rest = w.points
	for i := range w.ins {
		in := &w.ins[i]
		p := w.pointAt(i)
		if p != nil {
			w.takeUpTo(in.start)
			w.charge(p)
		}
		w.instr(in, i)
		if p = w.pointUntil(i); p != nil {
			w.takeUpTo(in.end)
			w.giveBackDepth()
		}
	}
	w.takeUpTo(uint32(len(w.f.Body)))
	if w.facts.loops {
		w.leave()
	}
	w.f.Body = Expr(w.out)
	w.f.Locals = append(w.f.Locals[:len(w.f.Locals):len(w.f.Locals)], w.addedLocals()...)
}

// pointAt returns the point before instruction i, if there is one.
func (w *rewriter) pointAt(i int) *point {
	for len(w.rest) > 0 && max(w.rest[0].at, w.rest[0].last) < i {
		w.rest = w.rest[1:]
	}
	if len(w.rest) > 0 && w.rest[0].at == i {
		return &w.rest[0]
	}
	return nil
}

// pointUntil returns the point that took depth for calls of which instruction i
// is the last.
func (w *rewriter) pointUntil(i int) *point {
	if len(w.rest) > 0 && w.rest[0].kind == pointCalls && w.rest[0].deep && w.rest[0].last == i {
		return &w.rest[0]
	}
	return nil
}

func (w *rewriter) addedLocals() []Locals {
	switch {
	case w.uses.length:
		return []Locals{{Count: 1, Type: I64}, {Count: 1, Type: I32}}
	case w.uses.counter:
		return []Locals{{Count: 1, Type: I64}}
	default:
		return nil
	}
}

// enter opens the block around the body of a function with loops.
func (w *rewriter) enter() {
	results := w.meter.m.Types[w.f.Type].Results
	w.out = w.out.op(opBlock, w.meter.blockType(nil, results))
	w.blocks = append(w.blocks, opened{label: 0})
	w.open = 1
}

// leave follows the end of that block.
func (w *rewriter) leave() {
	w.out = w.out.getLocal(w.counter)
	if w.facts.recursive {
		w.out = w.out.i64(depthUnit).op(opI64Sub)
	}
	w.out = w.out.setGlobal(w.meter.counter).end()
}

// takeUpTo copies the old body up to end.
func (w *rewriter) takeUpTo(end uint32) {
	w.out = append(w.out, w.f.Body[w.taken:end]...)
	w.taken = end
}

// replace makes out end where in would start, and leaves in out.
func (w *rewriter) replace(in *instr) {
	w.takeUpTo(in.start)
	w.taken = in.end
}

// instr writes one instruction, if it does not stay as it is.
func (w *rewriter) instr(in *instr, i int) {
	switch in.op {
	case opCall:
		w.replace(in)
		w.call(in, func(c code) code { return c.call(w.meter.renumbered(uint32(in.imm[0]))) })
	case opCallIndirect:
		w.replace(in)
		w.call(in, func(c code) code { return c.op(in.op, in.imm[0], in.imm[1]) })
	case opRefFunc:
		w.replace(in)
		w.out = w.out.op(opRefFunc, int64(w.meter.renumbered(uint32(in.imm[0]))))
	case opMemoryFill, opMemoryCopy, opMemoryInit, opTableFill, opTableCopy, opTableInit:
		w.replace(in)
		w.bulk(in)
	case opMemoryGrow, opTableGrow:
		w.replace(in)
		w.handOver(func(c code) code { return c.call(w.meter.helper(in)) })
	default:
		if w.facts.loops {
			w.control(in, i)
		}
	}
}

func (w *rewriter) call(in *instr, call func(code) code) {
	if w.meter.leaves(in) {
		w.handOver(call)
	} else {
		w.out = call(w.out)
	}
}

// handOver writes code during which the counter has to be in the global.
func (w *rewriter) handOver(write func(code) code) {
	if !w.facts.loops {
		w.out = write(w.out)
		return
	}
	w.out = w.out.getLocal(w.counter).setGlobal(w.meter.counter)
	w.out = write(w.out).getGlobal(w.meter.counter).setLocal(w.counter)
}

// control follows blocks and labels in a function with loops.
func (w *rewriter) control(in *instr, i int) {
	switch in.op {
	case opBlock, opIf:
		w.openBlock(nil)
	case opLoop:
		w.replace(in)
		w.openLoop(in.imm[0], i+1)
	case opEnd:
		w.replace(in)
		w.closeBlock()
	case opBr, opBrIf:
		w.replace(in)
		w.out = w.out.op(in.op, w.label(in.imm[0]))
	case opBrTable:
		w.replace(in)
		w.brTable(in)
	case opReturn:
		w.replace(in)
		w.out = w.out.op(opBr, int64(w.open-1))
	default:
	}
}

func (w *rewriter) openBlock(loop *point) {
	w.blocks = append(w.blocks, opened{label: w.open, loop: loop})
	w.open++
}

// label translates a label of the old body.
func (w *rewriter) label(old int64) int64 {
	block := w.blocks[len(w.blocks)-1-int(old)]
	return int64(w.open - 1 - block.label)
}

func (w *rewriter) brTable(in *instr) {
	r := &reader{buf: w.f.Body[in.start:in.end]}
	var table instruction
	table.next(r)
	for i, l := range table.labels {
		table.labels[i] = uint32(w.label(int64(l)))
	}
	table.imm[1] = w.label(table.imm[1])
	w.out = appendInstr(w.out, &table)
}

// localTypes finds the types of locals.
type localTypes struct {
	params []ValueType
	groups []Locals
	ends   []uint32 // of the groups, counted with the parameters
}

func newLocalTypes(t *FuncType, f *Func) localTypes {
	l := localTypes{params: t.Params, groups: f.Locals}
	end := uint32(len(t.Params))
	for _, g := range f.Locals {
		end += g.Count
		l.ends = append(l.ends, end)
	}
	return l
}

func (l *localTypes) of(local uint32) ValueType {
	if int(local) < len(l.params) {
		return l.params[local]
	}
	group := sort.Search(len(l.ends), func(i int) bool { return local < l.ends[i] })
	return l.groups[group].Type
}
