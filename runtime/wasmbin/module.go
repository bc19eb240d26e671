package wasmbin

// Module is a core module, section by section (core specification 5.5). Its
// parts may be changed freely before Encode; index spaces start with the
// imports.
type Module struct {
	Types    []FuncType
	Imports  []Import
	Funcs    []Func // the functions defined here: function and code sections
	Tables   []TableType
	Memories []Limits
	Globals  []Global
	Exports  []Export
	Start    *uint32
	Elements []Element
	Datas    []Data
	Customs  []Custom

	// DataCount says whether the module has a data count section. Modules with
	// memory.init or data.drop must.
	DataCount bool
}

// Import is one import (core specification 5.5.5). Kind says which of the
// fields after it counts.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Type         uint32 // of a function
	Table        TableType
	Memory       Limits
	Global       GlobalType
}

// Export is one export (core specification 5.5.10).
type Export struct {
	Name  string
	Kind  ExternKind
	Index uint32
}

// Func is a function defined in the module (core specification 5.5.6, 5.5.13).
type Func struct {
	Type   uint32
	Locals []Locals
	Body   Expr
}

// Locals declares Count locals of one type.
type Locals struct {
	Count uint32
	Type  ValueType
}

// Expr is a sequence of encoded instructions with its final end (core
// specification 5.4.9). Expressions of a decoded module have the shortest
// encoding and may alias the decoded bytes; what is put in their place has to be
// well-formed.
type Expr []byte

// Global is a global defined in the module (core specification 5.5.9).
type Global struct {
	Type GlobalType
	Init Expr
}

// Element is an element segment (core specification 5.5.12).
type Element struct {
	Form   ElementForm
	Table  uint32    // of an active segment
	Offset Expr      // of an active segment
	Type   ValueType // of expressions that are not an active segment of table 0
	Funcs  []uint32
	Exprs  []Expr
}

// ElementForm is the number that an element segment starts with: a set of bits.
type ElementForm uint32

// The bits of an ElementForm. A segment that is not active is passive, or
// declarative if ElementHasTable is set too.
const (
	ElementNotActive ElementForm = 1 << iota
	ElementHasTable
	ElementHasExprs
)

func (f ElementForm) active() bool { return f&ElementNotActive == 0 }

// typed reports whether the form writes the type of the elements out.
func (f ElementForm) typed() bool { return f&(ElementNotActive|ElementHasTable) != 0 }

// Data is a data segment (core specification 5.5.14).
type Data struct {
	Form   DataForm
	Offset Expr // of an active segment
	Init   []byte
}

// DataForm is the number that a data segment starts with.
type DataForm uint32

// The forms of data segments. The third names memory 0 explicitly.
const (
	DataActive DataForm = iota
	DataPassive
	DataActiveInMemory
)

// Custom is a custom section (core specification 5.5.3).
type Custom struct {
	Name string
	Data []byte

	after section // the section it follows
}

// section is the number of a section.
type section byte

const (
	sectionCustom section = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
)

// sectionOrder is the order in which sections appear (core specification
// 5.5.16).
var sectionOrder = []section{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal,
	sectionExport, sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

// rank is the position of a section in sectionOrder.
func (s section) rank() int {
	switch s {
	case sectionDataCount:
		return int(sectionCode)
	case sectionCode, sectionData:
		return int(s) + 1
	default:
		return int(s)
	}
}

func (s section) String() string {
	names := [...]string{
		"custom", "type", "import", "function", "table", "memory", "global",
		"export", "start", "element", "code", "data", "data count",
	}
	if int(s) < len(names) {
		return names[s] + " section"
	}
	return "section"
}

// imported counts the imports of a kind.
func (m *Module) imported(kind ExternKind) int {
	n := 0
	for i := range m.Imports {
		if m.Imports[i].Kind == kind {
			n++
		}
	}
	return n
}

// funcTypes lists the type of every function, imports first.
func (m *Module) funcTypes() []uint32 {
	types := make([]uint32, 0, len(m.Imports)+len(m.Funcs))
	for i := range m.Imports {
		if m.Imports[i].Kind == ExternFunc {
			types = append(types, m.Imports[i].Type)
		}
	}
	for i := range m.Funcs {
		types = append(types, m.Funcs[i].Type)
	}
	return types
}
