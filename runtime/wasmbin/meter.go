package wasmbin

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

const (
	// ReservedPrefix starts the names of all import modules and exports that
	// rewriting adds.
	ReservedPrefix = "edgehost:"

	// MeterModule is the module from which a metered module imports
	// RefuelFunction.
	MeterModule = ReservedPrefix + "meter"

	// RefuelFunction is the function that a guest calls with an exhausted
	// counter: see Meter.
	RefuelFunction = "refuel"

	// CounterExport names the exported global, a mutable i64, that holds the
	// Counter of an instance.
	CounterExport = ReservedPrefix + "counter"

	// DefaultDepth is the depth in the counter of a fresh instance.
	DefaultDepth = 20_000
)

var (
	// ErrReserved is the error for modules that already use a name that starts
	// with ReservedPrefix.
	ErrReserved = errors.New("wasmbin: reserved name")

	// ErrInvalid is the error for modules with an index that names nothing.
	ErrInvalid = errors.New("wasmbin: invalid module")

	// ErrTooLarge is the error for modules with a table larger than allowed or
	// with a function too large to meter.
	ErrTooLarge = errors.New("wasmbin: module too large")
)

// MeterOptions are the choices of Meter.
type MeterOptions struct {
	// TableLimit bounds the elements of every table, which no other limit does.
	// Growing beyond it fails like growing beyond a declared maximum. Zero
	// means no bound.
	TableLimit uint32
}

// Meter rewrites m so that its work is counted and it can be stopped.
//
// Every instance has a Counter in the exported global CounterExport. Code takes
// its cost from the counter's fuel, and calls that may recurse take from its
// depth for as long as they last. A guest that finds the counter exhausted calls
// the function that it imports as RefuelFunction of MeterModule, with the counter
// as only parameter and result, both i64. Being a call into Go, that alone lets
// the collector stop the world. The function stops the guest, by panicking, if
// Depth is negative, or for reasons of its own; otherwise it returns a counter
// with a new slice of Fuel, of any size, and the same Depth. What a slice used is
// its size less the Fuel left, which is negative by a little.
//
// A fresh instance has no fuel and a depth of DefaultDepth. The host may set the
// counter before a call, and has to after a trap; what is left in it after a call
// is exact, and after a trap that since the last refuelling is unknown. When an
// imported function runs, the counter is up to date.
//
// One unit of fuel is about one instruction that does work, as a compiler sees
// it, and four for a load: 200,000 are some 20 µs of a Go guest, and at worst,
// with all loads missing the caches, a few milliseconds. Bulk operations of more than 1 KiB or 128 elements cost one unit for 8
// bytes or one element, and growing costs what is added. A path is charged up to
// spareLimit units too much at a time, for code behind a condition that does not
// hold, and a call through a table pays for the largest of the small functions of
// its type. Fuel depends on the module and what it is given, and on nothing else.
// Between two looks at the counter a guest passes no start of a loop, calls no
// function that is recursive or has a loop, and moves no more than 256 KiB or
// 32 Ki table elements.
//
// The result validates exactly if m does, and computes the same; debugging
// information and names of labels are dropped. Meter fails with ErrReserved,
// ErrInvalid or ErrTooLarge, and m is then unusable. Compiled by wazero, kernels
// in tight loops take up to 1.2 times as long, and Go guests up to 1.15 times.
func Meter(m *Module, options MeterOptions) error {
	if err := m.checkReserved(); err != nil {
		return err
	}
	if err := m.limitTables(options.TableLimit); err != nil {
		return err
	}
	g := newGatherer(m)
	all, err := g.functions()
	if err != nil {
		return err
	}
	g.analyze(all)
	mt := newMeter(g, all)
	m.shiftFuncs(g.imported, 1)
	mt.addSeam()
	mt.functions()
	m.Funcs = append(m.Funcs, mt.helpers...)
	return nil
}

func (m *Module) checkReserved() error {
	for i := range m.Imports {
		if strings.HasPrefix(m.Imports[i].Module, ReservedPrefix) {
			return fmt.Errorf("%w: import module %q", ErrReserved, m.Imports[i].Module)
		}
	}
	for i := range m.Exports {
		if strings.HasPrefix(m.Exports[i].Name, ReservedPrefix) {
			return fmt.Errorf("%w: export %q", ErrReserved, m.Exports[i].Name)
		}
	}
	return nil
}

// limitTables lowers the maxima of the tables defined in the module.
func (m *Module) limitTables(limit uint32) error {
	if limit == 0 {
		return nil
	}
	for i := range m.Tables {
		l := &m.Tables[i].Limits
		if l.Min > limit {
			return fmt.Errorf("%w: table %d has %d elements, %d are allowed", ErrTooLarge, i, l.Min, limit)
		}
		if !l.HasMax || l.Max > limit {
			l.HasMax, l.Max = true, limit
		}
	}
	return nil
}

// meter is the metering of one module. Function indices are those before
// renumbering, except for the ones that it adds.
type meter struct {
	m        *Module
	facts    []facts
	imported uint32 // functions
	refuel   uint32 // the added import
	counter  uint32 // the added global
	tables   []TableType
	typeDues []int // what calls through a table pay, by type
	typeOf   map[string]uint32

	helpers     []Func
	helperIndex map[helper]uint32
}

func newMeter(g *gatherer, all []facts) *meter {
	return &meter{
		m:           g.m,
		facts:       all,
		imported:    g.imported,
		refuel:      g.imported,
		counter:     g.globals,
		tables:      g.tables,
		typeDues:    g.typeDues(all),
		typeOf:      make(map[string]uint32),
		helperIndex: make(map[helper]uint32),
	}
}

// addSeam adds what the host sees.
func (mt *meter) addSeam() {
	m := mt.m
	m.Imports = append(m.Imports, Import{
		Module: MeterModule, Name: RefuelFunction, Kind: ExternFunc,
		Type: mt.typeIndex(FuncType{Params: []ValueType{I64}, Results: []ValueType{I64}}),
	})
	m.Globals = append(m.Globals, Global{
		Type: GlobalType{Type: I64, Mutable: true},
		Init: Expr(code(nil).i64(int64(NewCounter(0, DefaultDepth))).end()),
	})
	m.Exports = append(m.Exports, Export{Name: CounterExport, Kind: ExternGlobal, Index: mt.counter})
}

// functions rewrites the code of all functions.
func (mt *meter) functions() {
	p := planner{meter: mt}
	for i := range mt.m.Funcs {
		p.plan(&mt.m.Funcs[i], &mt.facts[i])
		newRewriter(mt, &p, &mt.m.Funcs[i]).function()
	}
}

// dues is what a direct call pays for its callee.
func (mt *meter) dues(index uint32) int {
	if index < mt.imported {
		return 0
	}
	return mt.facts[index-mt.imported].dues
}

// leaves reports whether in leads to code that uses the counter.
func (mt *meter) leaves(in *instr) bool {
	switch in.op {
	case opCall:
		index := uint32(in.imm[0])
		return index < mt.imported || !mt.facts[index-mt.imported].free
	case opCallIndirect:
		return true
	default:
		return false
	}
}

// renumbered is the index after renumbering.
func (mt *meter) renumbered(index uint32) uint32 {
	if index >= mt.imported {
		return index + 1
	}
	return index
}

// typeIndex returns the index of a type, which it adds.
func (mt *meter) typeIndex(t FuncType) uint32 {
	key := string(appendFuncType(nil, t))
	index, ok := mt.typeOf[key]
	if !ok {
		index = uint32(len(mt.m.Types))
		mt.typeOf[key] = index
		mt.m.Types = append(mt.m.Types, t)
	}
	return index
}

// blockType returns the type of a block, as instructions have it.
func (mt *meter) blockType(params, results []ValueType) int64 {
	switch {
	case len(params) > 0 || len(results) > 1:
		return int64(mt.typeIndex(FuncType{Params: params, Results: results}))
	case len(results) == 1:
		return int64(results[0]) - 0x80
	default:
		return emptyBlock
	}
}

// tableTypes lists the types of all tables, imports first.
func (m *Module) tableTypes() []TableType {
	var types []TableType
	for i := range m.Imports {
		if m.Imports[i].Kind == ExternTable {
			types = append(types, m.Imports[i].Table)
		}
	}
	return append(types, m.Tables...)
}

// maxCost bounds the cost of a function, far above anything that compiles in
// reasonable time, so that sums of costs stay clear of the counter's range.
const maxCost = math.MaxInt32
