package wasmbin

import "fmt"

// Interface is what a module asks of its host and offers to it.
type Interface struct {
	Imports  []Extern
	Exports  []Extern
	Memories []Limits    // imported ones first
	Tables   []TableType // imported ones first
	Start    bool        // it has a start function
}

// Extern is an import or an export. Kind says which of the fields after it
// counts.
type Extern struct {
	Module string // of an import
	Name   string
	Kind   ExternKind
	Func   FuncType
	Table  TableType
	Memory Limits
	Global GlobalType
}

// String describes an extern for error messages.
func (e Extern) String() string {
	if e.Module != "" {
		return fmt.Sprintf("%s %s.%s", e.Kind, e.Module, e.Name)
	}
	return fmt.Sprintf("%s %s", e.Kind, e.Name)
}

// Interface describes m. The error wraps ErrInvalid if an index of m names
// nothing.
func (m *Module) Interface() (*Interface, error) {
	d := describer{m: m, funcs: m.funcTypes(), out: &Interface{Start: m.Start != nil}}
	for i := range m.Imports {
		if err := d.imported(&m.Imports[i]); err != nil {
			return nil, err
		}
	}
	d.out.Tables = append(d.out.Tables, m.Tables...)
	d.out.Memories = append(d.out.Memories, m.Memories...)
	for i := range m.Globals {
		d.globals = append(d.globals, m.Globals[i].Type)
	}
	for i := range m.Exports {
		if err := d.exported(&m.Exports[i]); err != nil {
			return nil, err
		}
	}
	return d.out, nil
}

// Find returns the export with a name.
func (i *Interface) Find(export string) (e Extern, ok bool) {
	for _, e := range i.Exports {
		if e.Name == export {
			return e, true
		}
	}
	return Extern{}, false
}

type describer struct {
	m       *Module
	funcs   []uint32 // types
	globals []GlobalType
	out     *Interface
}

func (d *describer) imported(i *Import) error {
	e := Extern{Module: i.Module, Name: i.Name, Kind: i.Kind}
	switch i.Kind {
	case ExternFunc:
		t, err := pick(d.m.Types, i.Type, "type")
		if err != nil {
			return err
		}
		e.Func = t
	case ExternTable:
		e.Table = i.Table
		d.out.Tables = append(d.out.Tables, i.Table)
	case ExternMemory:
		e.Memory = i.Memory
		d.out.Memories = append(d.out.Memories, i.Memory)
	case ExternGlobal:
		e.Global = i.Global
		d.globals = append(d.globals, i.Global)
	}
	d.out.Imports = append(d.out.Imports, e)
	return nil
}

func (d *describer) exported(x *Export) (err error) {
	e := Extern{Name: x.Name, Kind: x.Kind}
	switch x.Kind {
	case ExternFunc:
		var t uint32
		if t, err = pick(d.funcs, x.Index, "function"); err == nil {
			e.Func, err = pick(d.m.Types, t, "type")
		}
	case ExternTable:
		e.Table, err = pick(d.out.Tables, x.Index, "table")
	case ExternMemory:
		e.Memory, err = pick(d.out.Memories, x.Index, "memory")
	case ExternGlobal:
		e.Global, err = pick(d.globals, x.Index, "global")
	}
	d.out.Exports = append(d.out.Exports, e)
	return err
}

func pick[T any](list []T, index uint32, what string) (v T, err error) {
	if err := within(int64(index), len(list), what); err != nil {
		return v, err
	}
	return list[index], nil
}
