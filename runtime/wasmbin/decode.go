package wasmbin

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// ErrNotCore is the error for bytes that are no core module at all; its text
// says what they seem to be.
var ErrNotCore = errors.New("wasmbin: not a core WebAssembly module")

var (
	magic   = []byte("\x00asm")
	version = []byte{1, 0, 0, 0}
)

// checkPreamble looks at the first eight bytes (core specification 5.5.16; the
// component model sets the layer, the last two bytes, to 1).
func checkPreamble(wasm []byte) error {
	switch {
	case len(wasm) == 0:
		return fmt.Errorf("%w: it is empty", ErrNotCore)
	case bytes.HasPrefix(bytes.TrimLeft(wasm, " \t\r\n"), []byte("(")):
		return fmt.Errorf("%w: it looks like the text format", ErrNotCore)
	case !bytes.HasPrefix(wasm, magic):
		return fmt.Errorf("%w: it does not start with \\0asm", ErrNotCore)
	case len(wasm) < 8:
		return fmt.Errorf("%w: it ends after %d bytes", ErrNotCore, len(wasm))
	case wasm[6] == 1 && wasm[7] == 0:
		return fmt.Errorf("%w: it is a component", ErrNotCore)
	case !bytes.HasPrefix(wasm[4:], version):
		return fmt.Errorf("%w: version %#x is not 1", ErrNotCore, wasm[4:8])
	default:
		return nil
	}
}

// Decode reads a module of WebAssembly 2.0 (core specification 5.5). It checks
// everything that the binary format demands, instruction by instruction, but
// does not validate: indices may be out of range and types may not fit. The
// result aliases wasm. The error is a *MalformedError or wraps ErrNotCore.
func Decode(wasm []byte) (*Module, error) {
	if err := checkPreamble(wasm); err != nil {
		return nil, err
	}
	d := decoder{
		r: &reader{buf: wasm, pos: len(magic) + len(version), where: "module"},
		m: new(Module),
	}
	for d.r.remaining() > 0 {
		d.section()
	}
	d.finish()
	if d.r.err != nil {
		return nil, d.r.err
	}
	return d.m, nil
}

type decoder struct {
	r         *reader
	m         *Module
	last      section // the last section that was not custom
	types     []uint32
	dataCount uint32
	usesData  int // offset of an instruction that names a data segment, or 0
}

// section reads one section, header included.
func (d *decoder) section() {
	start := d.r.pos
	id := section(d.r.byte("section"))
	size := d.r.u32("section size")
	if !d.r.failed() && id > sectionDataCount {
		d.r.failAt(start, "section %d does not exist", id)
	}
	if id != sectionCustom {
		if !d.r.failed() && id.rank() <= d.last.rank() {
			d.r.failAt(start, "%s after %s", id, d.last)
		}
		d.last = id
	}
	r := d.r.sub(int(size), id.String())
	if !d.r.failed() {
		d.content(id, r)
	}
	d.r.adopt(r)
}

func (d *decoder) content(id section, r *reader) {
	m := d.m
	switch id {
	case sectionCustom:
		m.Customs = append(m.Customs, Custom{Name: r.name("name"), Data: r.take(r.remaining(), "content"), after: d.last})
	case sectionType:
		m.Types = vector(r, "types", readFuncType)
	case sectionImport:
		m.Imports = vector(r, "imports", readImport)
	case sectionFunction:
		d.types = vector(r, "functions", readIndex)
	case sectionTable:
		m.Tables = vector(r, "tables", readTableType)
	case sectionMemory:
		m.Memories = vector(r, "memories", readLimits)
	case sectionGlobal:
		m.Globals = vector(r, "globals", readGlobal)
	case sectionExport:
		m.Exports = vector(r, "exports", readExport)
	case sectionStart:
		start := r.u32("function")
		m.Start = &start
	case sectionElement:
		m.Elements = vector(r, "segments", readElement)
	case sectionDataCount:
		m.DataCount = true
		d.dataCount = r.u32("number of segments")
	case sectionCode:
		d.code(r)
	case sectionData:
		m.Datas = vector(r, "segments", readData)
	}
}

// code reads the code section into functions with the types read before.
func (d *decoder) code(r *reader) {
	n := r.count("functions")
	if !r.failed() && n != len(d.types) {
		r.failAt(0, "%d functions have code, %d have a type", n, len(d.types))
		return
	}
	d.m.Funcs = make([]Func, 0, n)
	for i := range n {
		size := r.count("bytes of code")
		body := r.sub(size, fmt.Sprintf("code of function %d", d.m.imported(ExternFunc)+i))
		f := Func{Type: d.types[i], Locals: readLocals(body), Body: d.expr(body)}
		if r.adopt(body); r.failed() {
			return
		}
		d.m.Funcs = append(d.m.Funcs, f)
	}
}

// finish checks what holds between sections.
func (d *decoder) finish() {
	if d.r.failed() {
		return
	}
	switch m := d.m; {
	case len(m.Funcs) != len(d.types):
		d.r.failAt(d.r.pos, "%d functions have a type, none has code", len(d.types))
	case m.DataCount && int(d.dataCount) != len(m.Datas):
		d.r.failAt(d.r.pos, "%d data segments announced, %d found", d.dataCount, len(m.Datas))
	case d.usesData > 0 && !m.DataCount:
		d.r.failAt(d.usesData, "instruction on a data segment without a data count section")
	}
}

func readIndex(r *reader) uint32 { return r.u32("index") }

func readImport(r *reader) Import {
	i := Import{Module: r.name("module name"), Name: r.name("name")}
	i.Kind = readExternKind(r)
	switch i.Kind {
	case ExternFunc:
		i.Type = r.u32("type")
	case ExternTable:
		i.Table = readTableType(r)
	case ExternMemory:
		i.Memory = readLimits(r)
	case ExternGlobal:
		i.Global = readGlobalType(r)
	}
	return i
}

func readExternKind(r *reader) ExternKind {
	start := r.pos
	k := ExternKind(r.byte("kind"))
	if k > ExternGlobal {
		r.failAt(start, "kind: %#x is neither a function, a table, a memory nor a global", byte(k))
	}
	return k
}

func readExport(r *reader) Export {
	return Export{Name: r.name("name"), Kind: readExternKind(r), Index: r.u32("index")}
}

func readGlobal(r *reader) Global {
	return Global{Type: readGlobalType(r), Init: readExpr(r, nil)}
}

func readElement(r *reader) Element {
	start := r.pos
	e := Element{Form: ElementForm(r.u32("form"))}
	if e.Form > ElementNotActive|ElementHasTable|ElementHasExprs {
		r.failAt(start, "form: %d does not exist", e.Form)
	}
	if e.Form.active() {
		if e.Form&ElementHasTable != 0 {
			e.Table = r.u32("table")
		}
		e.Offset = readExpr(r, nil)
	}
	if e.Form&ElementHasExprs == 0 {
		if start := r.pos; e.Form.typed() && r.byte("kind") != 0 {
			r.failAt(start, "kind: only functions, 0, exist")
		}
		e.Funcs = vector(r, "functions", readIndex)
		return e
	}
	if e.Form.typed() {
		e.Type = readReferenceType(r)
	}
	e.Exprs = vector(r, "expressions", func(r *reader) Expr { return readExpr(r, nil) })
	return e
}

func readData(r *reader) Data {
	start := r.pos
	d := Data{Form: DataForm(r.u32("form"))}
	switch d.Form {
	case DataPassive:
	case DataActiveInMemory:
		if memory := r.u32("memory"); memory != 0 {
			r.failAt(start, "memory %d: there is only memory 0", memory)
		}
		d.Offset = readExpr(r, nil)
	case DataActive:
		d.Offset = readExpr(r, nil)
	default:
		r.failAt(start, "form: %d does not exist", d.Form)
	}
	d.Init = r.take(r.count("bytes"), "bytes")
	return d
}

func readLocals(r *reader) []Locals {
	start := r.pos
	total := uint64(0)
	locals := vector(r, "locals", func(r *reader) Locals {
		l := Locals{Count: r.u32("number of locals"), Type: readValueType(r)}
		total += uint64(l.Count)
		return l
	})
	if total > math.MaxUint32 {
		r.failAt(start, "%d locals are too many", total)
	}
	return locals
}

// expr reads an expression of a function and notes whether it needs the data
// count section.
func (d *decoder) expr(r *reader) Expr {
	return readExpr(r, func(in *instruction, pos int) {
		if in.op == opMemoryInit || in.op == opDataDrop {
			d.usesData = r.base + pos
		}
	})
}

// readExpr reads instructions up to the end that closes no block, hands each to
// visit with its position, and returns them in the shortest encoding.
func readExpr(r *reader, visit func(in *instruction, pos int)) Expr {
	start := r.pos
	r.padded = false
	var in instruction
	for blocks := []opcode{opBlock}; len(blocks) > 0 && !r.failed(); {
		pos := r.pos
		in.next(r)
		blocks = r.nest(blocks, in.op, pos)
		if visit != nil {
			visit(&in, pos)
		}
	}
	if r.failed() {
		return nil
	}
	if code := Expr(r.buf[start:r.pos:r.pos]); !r.padded {
		return code
	}
	return shortest(r.buf[start:r.pos])
}

// nest follows the instruction at pos into or out of a block.
func (r *reader) nest(blocks []opcode, op opcode, pos int) []opcode {
	top := len(blocks) - 1
	switch op {
	case opBlock, opLoop, opIf:
		return append(blocks, op)
	case opElse:
		if blocks[top] != opIf {
			r.failAt(pos, "else that belongs to no if")
		}
		blocks[top] = opElse
	case opEnd:
		return blocks[:top]
	default:
	}
	return blocks
}

// shortest encodes well-formed instructions again.
func shortest(code []byte) Expr {
	r := &reader{buf: code}
	out := make(Expr, 0, len(code))
	var in instruction
	for r.remaining() > 0 {
		in.next(r)
		out = appendInstr(out, &in)
	}
	return out
}
