package wasmbin

// instr is what rewriting remembers of an instruction of the function at hand.
type instr struct {
	op         opcode
	start, end uint32 // its bytes
	imm        [2]int64
}

// instrs reads the instructions of a body into list.
func instrs(list []instr, body Expr) []instr {
	r := &reader{buf: body}
	var in instruction
	for r.remaining() > 0 {
		start := r.pos
		in.next(r)
		list = append(list, instr{
			op: in.op, start: uint32(start), end: uint32(r.pos),
			imm: [2]int64{in.imm[0], in.imm[1]},
		})
	}
	return list
}

// point is a place where code is charged.
type point struct {
	kind  pointKind
	at    int  // the instruction before which it is
	last  int  // pointCalls: the last call
	cost  int  // what it charges
	spare int  // how much of cost is for code that may not run
	deep  bool // it also looks at the depth
}

// pointKind says where a point is and with that how it is written.
type pointKind byte

const (
	pointPlain pointKind = iota // charges only
	pointEntry                  // at the start of a function with loops
	pointLoop                   // at the start of a loop
	pointCalls                  // before the calls of a segment, in a function without loops
)

// spareLimit is how much a point charges at most for code behind a condition.
// Small arms are charged whether they run or not, which saves a subtraction in
// each.
const spareLimit = 16

// planner decides where a function charges what. It cuts code into segments,
// which end at instructions that branch or that open or close a block. Every
// reachable segment is paid for by a point that comes before it on every path,
// or by the callers.
type planner struct {
	meter   *meter
	facts   *facts
	ins     []instr
	points  []point
	carried map[int][]uint32 // locals by the instruction that a loop starts with

	payer    int   // the point that pays now, -1: the callers do
	opened   []int // payers at the start of the open blocks
	straight bool  // nothing so far could branch or call
	dead     int   // unreachable code: one more than the blocks opened in it
}

// entry says how control reaches a segment.
type entry byte

const (
	entryFunction entry = iota
	entryStraight       // always after the segment before it
	entryLoop           // from behind too
	entryBranch         // maybe not at all
)

// plan fills in ins, points and carried for f.
func (p *planner) plan(f *Func, facts *facts) {
	p.facts = facts
	p.ins = instrs(p.ins[:0], f.Body)
	p.points, p.opened, p.carried = p.points[:0], p.opened[:0], nil
	if facts.free {
		return
	}
	p.payer, p.straight, p.dead = -1, true, 0
	from, start := entryFunction, 0
	for i := range p.ins {
		op := p.ins[i].op
		switch {
		case p.dead > 0:
			from, start = p.skip(op), i+1
		case op.endsSegment():
			p.segment(start, i, from)
			p.straight = p.straight && op == opBlock
			from, start = p.control(op), i+1
		}
	}
	if facts.loops {
		p.carried = carriedLocals(p.ins)
	}
}

// control follows an instruction that ends a segment.
func (p *planner) control(op opcode) entry {
	switch op {
	case opBlock:
		p.opened = append(p.opened, p.payer)
		return entryStraight
	case opLoop:
		p.opened = append(p.opened, p.payer)
		return entryLoop
	case opIf:
		p.opened = append(p.opened, p.payer)
	case opElse:
		p.payer = p.opened[len(p.opened)-1]
	case opEnd:
		p.close()
	case opBr, opBrTable, opReturn, opUnreachable:
		p.dead = 1
	default:
	}
	return entryBranch
}

// close ends the innermost block. What follows it is reached only through its
// start, so whoever paid there may pay here.
func (p *planner) close() {
	if n := len(p.opened); n > 0 {
		p.payer, p.opened = p.opened[n-1], p.opened[:n-1]
	}
}

// skip passes over code that cannot be reached, up to where the block around it
// goes on.
func (p *planner) skip(op opcode) entry {
	switch op {
	case opBlock, opLoop, opIf:
		p.dead++
	case opElse:
		if p.dead == 1 {
			p.dead = 0
			p.payer = p.opened[len(p.opened)-1]
		}
	case opEnd:
		if p.dead--; p.dead == 0 {
			p.close()
		}
	default:
	}
	return entryBranch
}

// segment finds who pays for the instructions from start to end.
func (p *planner) segment(start, end int, from entry) {
	cost, first, last := p.weigh(start, end)
	leaves := first >= 0
	p.straight = p.straight && !leaves
	switch {
	case p.facts.loops && from == entryFunction:
		p.add(point{kind: pointEntry, at: start, cost: cost, deep: p.facts.recursive})
	case p.facts.loops && from == entryLoop:
		p.add(point{kind: pointLoop, at: start, cost: cost})
	case leaves && !p.facts.loops:
		p.add(point{kind: pointCalls, at: first, last: last, cost: cost, deep: p.facts.recursive})
	case cost == 0 || p.payer < 0 && p.facts.dues > 0:
	case from == entryStraight && p.payer >= 0:
		p.points[p.payer].cost += cost
	case p.payer >= 0 && p.points[p.payer].spare+cost <= spareLimit:
		p.points[p.payer].cost += cost
		p.points[p.payer].spare += cost
	default:
		p.add(point{kind: pointPlain, at: start, cost: cost})
	}
}

// add makes a point the payer. A loop that always follows the entry looks at
// the counter for it.
func (p *planner) add(at point) {
	if entry := 0; at.kind == pointLoop && p.straight {
		at.deep = p.points[entry].deep
		p.points[entry].kind, p.points[entry].deep = pointPlain, false
	}
	p.payer = len(p.points)
	p.points = append(p.points, at)
}

// weigh returns the cost of the instructions from start to end, and the first
// and the last of them that leads to code that uses the counter, or -1.
func (p *planner) weigh(start, end int) (cost, first, last int) {
	first = -1
	for i := start; i <= end; i++ {
		in := &p.ins[i]
		if p.facts.dues == 0 { // otherwise the callers pay
			cost += in.op.cost()
		}
		switch in.op {
		case opCall:
			cost += p.meter.dues(uint32(in.imm[0]))
		case opCallIndirect:
			cost += p.meter.typeDues[in.imm[0]]
		default:
		}
		if p.meter.leaves(in) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	return cost, first, last
}
