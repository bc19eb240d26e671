package wasmbin

import "fmt"

// facts is what metering knows about a function before it rewrites it.
type facts struct {
	cost     int      // of all its instructions, without what they call
	loops    bool     // it has a loop
	dynamic  bool     // it has an instruction whose cost depends on an operand
	imports  bool     // it calls an imported function
	calls    []uint32 // functions of the module that it calls, one entry for each place
	indirect []uint32 // types that it calls through a table

	recursive bool // a chain of its calls may lead back to it
	free      bool // it is cheap and calls only cheap functions: not metered at all
	dues      int  // what those who call it pay for its own instructions
}

// gatherer walks the functions of a module. It also makes sure that no index is
// out of range: rewriting adds functions, globals, locals, types and blocks, and
// an index that named nothing must not come to name one of them.
type gatherer struct {
	m        *Module
	types    []uint32 // of all functions
	imported uint32   // functions
	globals  uint32
	tables   []TableType
	taken    []bool // functions that may be in a table
}

func newGatherer(m *Module) *gatherer {
	types := m.funcTypes()
	return &gatherer{
		m:        m,
		types:    types,
		imported: uint32(len(types) - len(m.Funcs)),
		globals:  uint32(m.imported(ExternGlobal) + len(m.Globals)),
		tables:   m.tableTypes(),
		taken:    make([]bool, len(types)),
	}
}

// functions gathers the facts of all functions defined in the module.
func (g *gatherer) functions() ([]facts, error) {
	if err := g.outsideCode(); err != nil {
		return nil, err
	}
	all := make([]facts, len(g.m.Funcs))
	for i := range g.m.Funcs {
		if err := g.function(&g.m.Funcs[i], &all[i]); err != nil {
			return nil, fmt.Errorf("%w (function %d)", err, int(g.imported)+i)
		}
	}
	return all, nil
}

// outsideCode checks the indices in all other places that name functions,
// globals and types, and notes the functions that segments and globals name.
func (g *gatherer) outsideCode() error {
	for i := range g.types {
		if err := within(int64(g.types[i]), len(g.m.Types), "type"); err != nil {
			return err
		}
	}
	for i := range g.m.Exports {
		e := &g.m.Exports[i]
		if e.Kind == ExternFunc && int(e.Index) >= len(g.types) || e.Kind == ExternGlobal && e.Index >= g.globals {
			return fmt.Errorf("%w: export %q names %s %d, which does not exist", ErrInvalid, e.Name, e.Kind, e.Index)
		}
	}
	if g.m.Start != nil {
		if err := within(int64(*g.m.Start), len(g.types), "start function"); err != nil {
			return err
		}
	}
	var failed error
	g.m.eachConstExpr(func(in *instruction) {
		switch {
		case in.op == opGlobalGet && failed == nil:
			failed = within(in.imm[0], int(g.globals), "global")
		case in.op == opRefFunc && failed == nil:
			failed = g.take(in.imm[0])
		}
	})
	g.m.eachElement(func(index *uint32) {
		if failed == nil {
			failed = g.take(int64(*index))
		}
	})
	return failed
}

// take notes that a function's address is taken.
func (g *gatherer) take(index int64) error {
	if err := within(index, len(g.types), "function"); err != nil {
		return err
	}
	g.taken[index] = true
	return nil
}

func (g *gatherer) function(f *Func, out *facts) error {
	s := scan{g: g, out: out, locals: f.localCount(&g.m.Types[f.Type])}
	if s.locals > maxLocals {
		return fmt.Errorf("%w: %d locals", ErrTooLarge, s.locals)
	}
	r := &reader{buf: f.Body}
	var in instruction
	for r.remaining() > 0 {
		in.next(r)
		out.cost += in.op.cost()
		if err := s.instr(&in); err != nil {
			return fmt.Errorf("%w, before byte %#x of its code", err, r.pos)
		}
	}
	if out.cost > maxCost {
		return fmt.Errorf("%w: %d instructions", ErrTooLarge, out.cost)
	}
	return nil
}

// maxLocals bounds the locals of a function; it is the limit that engines agreed
// on (WebAssembly JavaScript interface, limits).
const maxLocals = 50_000

// localCount counts the parameters and locals of a function.
func (f *Func) localCount(t *FuncType) uint64 {
	n := uint64(len(t.Params))
	for _, l := range f.Locals {
		n += uint64(l.Count)
	}
	return n
}

// scan is the state of the walk over one function.
type scan struct {
	g      *gatherer
	out    *facts
	locals uint64
	depth  int64 // of open blocks
}

// instr notes what in is to metering and checks its indices.
func (s *scan) instr(in *instruction) error {
	index := in.imm[0]
	switch in.op {
	case opBlock, opLoop, opIf:
		s.out.loops = s.out.loops || in.op == opLoop
		s.depth++
		return within(index, len(s.g.m.Types), "type")
	case opEnd:
		s.depth--
	case opBr, opBrIf:
		return s.label(index)
	case opBrTable:
		for _, l := range in.labels {
			if err := s.label(int64(l)); err != nil {
				return err
			}
		}
		return s.label(in.imm[1])
	case opCall:
		return s.call(index)
	case opRefFunc:
		return s.g.take(index)
	case opCallIndirect:
		s.out.indirect = append(s.out.indirect, uint32(index))
		return within(index, len(s.g.m.Types), "type")
	case opLocalGet, opLocalSet, opLocalTee:
		return within(index, int(s.locals), "local")
	case opGlobalGet, opGlobalSet:
		return within(index, int(s.g.globals), "global")
	case opMemoryGrow, opMemoryFill, opMemoryCopy, opMemoryInit:
		s.out.dynamic = true
	case opTableGrow, opTableFill:
		return s.tables(index)
	case opTableCopy:
		return s.tables(index, in.imm[1])
	case opTableInit:
		return s.tables(in.imm[1])
	default:
	}
	return nil
}

func (s *scan) call(index int64) error {
	if err := within(index, len(s.g.types), "function"); err != nil {
		return err
	}
	if uint32(index) < s.g.imported {
		s.out.imports = true
	} else {
		s.out.calls = append(s.out.calls, uint32(index)-s.g.imported)
	}
	return nil
}

func (s *scan) label(l int64) error { return within(l, int(s.depth)+1, "label") }

func (s *scan) tables(indices ...int64) error {
	s.out.dynamic = true
	for _, i := range indices {
		if err := within(i, len(s.g.tables), "table"); err != nil {
			return err
		}
	}
	return nil
}

func within(i int64, n int, what string) error {
	if i >= int64(n) {
		return fmt.Errorf("%w: %s %d does not exist, there are %d", ErrInvalid, what, i, n)
	}
	return nil
}
