package wasmbin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

const (
	// StartExport is the name under which Expose exports a start function.
	StartExport = ReservedPrefix + "start"

	// GlobalExport starts the names under which Expose exports globals. The
	// first is followed by 0, the second by 1 and so on.
	GlobalExport = ReservedPrefix + "global/"

	imageSection = ReservedPrefix + "image"
)

// ErrHidden is the error for modules with state that no host can reach.
var ErrHidden = errors.New("wasmbin: state out of reach")

// Expose rewrites m so that all state of an instance, its memory and its
// globals, can be read and written from outside: a host that restores both has
// restored the instance. Whatever happens at instantiation is left to the host:
//
//   - Globals that code sets are exported under names that begin with
//     GlobalExport, apart from the one of Meter.
//   - Active data segments are empty. What was in them goes to a custom section,
//     from which ImageOf takes it, to be copied in that order.
//   - The start function is exported as StartExport, to be called after that.
//
// Tables keep what instantiation puts into them. A module whose code changes
// tables, drops segments, or keeps vectors or references in globals fails with
// ErrHidden. Otherwise the result validates exactly if m does. Expose comes after
// Meter. It fails with ErrReserved or ErrInvalid as well; after any error m is
// unchanged.
func Expose(m *Module) error {
	for i := range m.Exports {
		if name := m.Exports[i].Name; name == StartExport || strings.HasPrefix(name, GlobalExport) {
			return fmt.Errorf("%w: export %q", ErrReserved, name)
		}
	}
	s, err := m.surveyState()
	if err != nil {
		return err
	}
	image, err := m.image()
	if err != nil {
		return err
	}
	if err := m.checkStart(); err != nil {
		return err
	}
	m.Customs = append(m.Customs, Custom{Name: imageSection, Data: image})
	m.emptyActiveData(s.namesData)
	m.exportStart()
	for i, index := range s.globals {
		m.Exports = append(m.Exports, Export{Name: GlobalExport + strconv.Itoa(i), Kind: ExternGlobal, Index: index})
	}
	return nil
}

// state is what the code of a module says about the state of its instances.
type state struct {
	globals   []uint32 // those that are set
	namesData bool     // an instruction names a data segment
}

// surveyState looks for what code changes beside the memory.
func (m *Module) surveyState() (s state, err error) {
	set := make([]bool, m.imported(ExternGlobal)+len(m.Globals))
	for i := range m.Funcs {
		r := &reader{buf: m.Funcs[i].Body}
		for in := new(instruction); r.remaining() > 0 && err == nil; {
			in.next(r)
			switch in.op {
			case opGlobalSet:
				if err = within(in.imm[0], len(set), "global"); err == nil {
					set[in.imm[0]] = true
				}
			case opMemoryInit:
				s.namesData = true
			case opTableSet, opTableGrow, opTableFill, opTableCopy, opTableInit, opElemDrop, opDataDrop:
				err = fmt.Errorf("%w: the code has %s", ErrHidden, in.op.changes())
			default:
			}
		}
		if err != nil {
			return s, err
		}
	}
	for index, changes := range set {
		if changes && !m.exports(CounterExport, uint32(index)) {
			s.globals = append(s.globals, uint32(index))
		}
	}
	return s, m.checkGlobals(s.globals)
}

// changes says what an instruction on tables and segments does, for errors.
func (op opcode) changes() string {
	switch op {
	case opElemDrop, opDataDrop:
		return "an instruction that drops a segment (elem.drop or data.drop)"
	default:
		return "an instruction that changes a table (table.set, grow, fill, copy or init)"
	}
}

func (m *Module) exports(name string, index uint32) bool {
	for i := range m.Exports {
		if e := &m.Exports[i]; e.Kind == ExternGlobal && e.Index == index && e.Name == name {
			return true
		}
	}
	return false
}

// checkGlobals makes sure that globals can be read and written by a host.
func (m *Module) checkGlobals(globals []uint32) error {
	imported := uint32(m.imported(ExternGlobal))
	for _, index := range globals {
		if index < imported {
			return fmt.Errorf("%w: global %d is imported", ErrHidden, index)
		}
		t := m.Globals[index-imported].Type
		if !t.Mutable {
			return fmt.Errorf("%w: global %d is set and is constant", ErrInvalid, index)
		}
		if t.Type == V128 || t.Type.isReference() {
			return fmt.Errorf("%w: global %d is a variable %s", ErrHidden, index, t.Type)
		}
	}
	return nil
}

func (m *Module) checkStart() error {
	if m.Start == nil {
		return nil
	}
	types := m.funcTypes()
	if err := within(int64(*m.Start), len(types), "start function"); err != nil {
		return err
	}
	t, err := pick(m.Types, types[*m.Start], "type")
	if err == nil && len(t.Params)+len(t.Results) > 0 {
		err = fmt.Errorf("%w: the start function has parameters or results", ErrInvalid)
	}
	return err
}

// exportStart makes the start function an export, by way of another that calls it:
// to export a function itself would allow references to it (core specification
// 3.4.10, C.refs).
func (m *Module) exportStart() {
	if m.Start == nil {
		return
	}
	types := m.funcTypes()
	m.Exports = append(m.Exports, Export{Name: StartExport, Kind: ExternFunc, Index: uint32(len(types))})
	m.Funcs = append(m.Funcs, Func{Type: types[*m.Start], Body: Expr(code(nil).call(*m.Start).end())})
	m.Start = nil
}

// image encodes the active data segments: how many there are, and for each its
// offset, its length and its bytes.
func (m *Module) image() ([]byte, error) {
	var segments []byte
	n := 0
	for i := range m.Datas {
		d := &m.Datas[i]
		if d.Form == DataPassive {
			continue
		}
		if len(m.Memories)+m.imported(ExternMemory) == 0 {
			return nil, fmt.Errorf("%w: data segment %d has no memory", ErrInvalid, i)
		}
		offset, ok := d.Offset.constant()
		if !ok {
			return nil, fmt.Errorf("%w: data segment %d has no constant offset", ErrHidden, i)
		}
		segments = binary.AppendUvarint(segments, uint64(offset))
		segments = append(binary.AppendUvarint(segments, uint64(len(d.Init))), d.Init...)
		n++
	}
	return append(binary.AppendUvarint(nil, uint64(n)), segments...), nil
}

// constant returns the value of an expression that is an i32 constant.
func (e Expr) constant() (value uint32, ok bool) {
	r := &reader{buf: e}
	var in, last instruction
	in.next(r)
	last.next(r)
	return uint32(in.imm[0]), in.op == opI32Const && last.op == opEnd && r.remaining() == 0 && !r.failed()
}

// emptyActiveData takes out what image returned. Segments that no instruction
// can name go as a whole, since engines evaluate the offset of every one that is
// left; otherwise they stay, and with them the numbers of the passive ones.
func (m *Module) emptyActiveData(named bool) {
	if !named {
		m.Datas, m.DataCount = nil, false
		return
	}
	for i := range m.Datas {
		if d := &m.Datas[i]; d.Form != DataPassive {
			d.Offset, d.Init = Expr(code(nil).i32(0).end()), nil
		}
	}
}

// An Image is what active data segments put into a memory.
type Image []byte

// ImageOf returns the segments that Expose took out of a module. It reports false
// if the bytes are not those of a module that went through Expose. The result
// aliases wasm.
func ImageOf(wasm []byte) (image Image, ok bool) {
	if checkPreamble(wasm) != nil {
		return nil, false
	}
	r := &reader{buf: wasm, pos: len(magic) + len(version)}
	for r.remaining() > 0 && !r.failed() {
		id := section(r.byte("section"))
		content := r.sub(int(r.u32("section size")), "section")
		if id == sectionCustom && content.name("name") == imageSection && !content.failed() {
			return content.buf[content.pos:], true
		}
	}
	return nil, false
}

// Segments yields the segments in their order, each with the address of its first
// byte. They alias the image.
func (image Image) Segments() iter.Seq2[uint32, []byte] {
	return func(yield func(uint32, []byte) bool) {
		r := &reader{buf: image}
		for range r.u32("segments") {
			offset := r.u32("offset")
			b := r.take(int(r.u32("length")), "segment")
			if r.failed() || !yield(offset, b) {
				return
			}
		}
	}
}
