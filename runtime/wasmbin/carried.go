package wasmbin

// maxCarried bounds the locals that are looked after in one loop.
const maxCarried = 32

// carriedLocals lists, for every innermost loop by the index of the instruction
// it starts with, the locals whose values are carried from one iteration to the
// next: set in the loop, and read in it before they are certainly set.
func carriedLocals(ins []instr) map[int][]uint32 {
	carried := make(map[int][]uint32)
	var c carrier
	start, depth := -1, 0
	for i := range ins {
		switch op := ins[i].op; {
		case op == opLoop:
			start, depth = i+1, 1
			c.reset()
		case start < 0:
		case op == opBlock || op == opIf:
			depth++
			c.open()
		case op == opElse:
			c.forget()
		case op == opEnd:
			if depth--; depth == 0 {
				carried[start], start = c.list(), -1
			} else {
				c.close()
			}
		default:
			c.access(op, uint32(ins[i].imm[0]))
		}
	}
	return carried
}

// carrier follows the locals of one loop.
type carrier struct {
	locals []carrierLocal // in the order of their first use
	index  map[uint32]int
	set    []int // locals certainly set here, in the order in which they were
	marks  []int // length of set at the start of the open blocks
}

type carrierLocal struct {
	local        uint32
	exposed      bool // read when it may not be set
	assigned     bool // set somewhere
	certainlySet bool // set on every path to here
}

func (c *carrier) reset() {
	c.locals, c.set, c.marks = c.locals[:0], c.set[:0], c.marks[:0]
	c.index = make(map[uint32]int)
}

func (c *carrier) open() { c.marks = append(c.marks, len(c.set)) }

// forget drops what was set in the innermost block: code after it may be
// reached without.
func (c *carrier) forget() {
	mark := c.marks[len(c.marks)-1]
	for _, i := range c.set[mark:] {
		c.locals[i].certainlySet = false
	}
	c.set = c.set[:mark]
}

func (c *carrier) close() {
	c.forget()
	c.marks = c.marks[:len(c.marks)-1]
}

func (c *carrier) access(op opcode, local uint32) {
	if op != opLocalGet && op != opLocalSet && op != opLocalTee {
		return
	}
	i, ok := c.index[local]
	if !ok {
		i = len(c.locals)
		c.index[local] = i
		c.locals = append(c.locals, carrierLocal{local: local})
	}
	l := &c.locals[i]
	if op == opLocalGet {
		l.exposed = l.exposed || !l.certainlySet
		return
	}
	l.assigned = true
	if !l.certainlySet {
		l.certainlySet = true
		c.set = append(c.set, i)
	}
}

func (c *carrier) list() []uint32 {
	var list []uint32
	for i := range c.locals {
		if l := &c.locals[i]; l.exposed && l.assigned && len(list) < maxCarried {
			list = append(list, l.local)
		}
	}
	return list
}
