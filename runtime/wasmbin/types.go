package wasmbin

// ValueType is the type of a value on the stack, in its binary form (core
// specification 5.3.4).
type ValueType byte

// The value types of WebAssembly 2.0.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

func (t ValueType) valid() bool {
	return V128 <= t && t <= I32 || t.isReference()
}

func (t ValueType) isReference() bool { return t == FuncRef || t == ExternRef }

// String returns the type's name in the text format.
func (t ValueType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	default:
		return "invalid"
	}
}

// FuncType is the signature of a function (core specification 5.3.6).
type FuncType struct {
	Params  []ValueType
	Results []ValueType
}

// Limits bound the size of a memory, in pages of 64 KiB, or of a table, in
// elements (core specification 5.3.7). Max counts only if HasMax.
type Limits struct {
	Min    uint32
	Max    uint32
	HasMax bool
}

// TableType is the type of a table (core specification 5.3.9).
type TableType struct {
	Element ValueType
	Limits  Limits
}

// GlobalType is the type of a global (core specification 5.3.10).
type GlobalType struct {
	Type    ValueType
	Mutable bool
}

// ExternKind says what an import or export is (core specification 5.5.5, 5.5.10).
type ExternKind byte

// The kinds of imports and exports.
const (
	ExternFunc   ExternKind = 0
	ExternTable  ExternKind = 1
	ExternMemory ExternKind = 2
	ExternGlobal ExternKind = 3
)

// String returns the kind's name in the text format.
func (k ExternKind) String() string {
	switch k {
	case ExternFunc:
		return "func"
	case ExternTable:
		return "table"
	case ExternMemory:
		return "memory"
	case ExternGlobal:
		return "global"
	default:
		return "invalid"
	}
}

func readValueType(r *reader) ValueType {
	start := r.pos
	t := ValueType(r.byte("value type"))
	if !r.failed() && !t.valid() {
		r.failAt(start, "value type: %#x is none", byte(t))
	}
	return t
}

func readReferenceType(r *reader) ValueType {
	start := r.pos
	t := ValueType(r.byte("reference type"))
	if !r.failed() && !t.isReference() {
		r.failAt(start, "reference type: %#x is none", byte(t))
	}
	return t
}

func appendValueType(b []byte, t ValueType) []byte { return append(b, byte(t)) }

const funcTypeForm = 0x60

func readFuncType(r *reader) FuncType {
	start := r.pos
	if form := r.byte("function type"); !r.failed() && form != funcTypeForm {
		r.failAt(start, "function type: starts with %#x, not 0x60", form)
	}
	return FuncType{
		Params:  vector(r, "parameters", readValueType),
		Results: vector(r, "results", readValueType),
	}
}

func appendFuncType(b []byte, t FuncType) []byte {
	b = append(b, funcTypeForm)
	b = appendVector(b, t.Params, appendValueType)
	return appendVector(b, t.Results, appendValueType)
}

func readLimits(r *reader) Limits {
	start := r.pos
	flag := r.byte("limits")
	if flag > 1 {
		r.failAt(start, "limits: form %#x is neither 0 (minimum) nor 1 (minimum and maximum)", flag)
	}
	l := Limits{Min: r.u32("minimum"), HasMax: flag == 1}
	if l.HasMax {
		l.Max = r.u32("maximum")
	}
	return l
}

func appendLimits(b []byte, l Limits) []byte {
	if !l.HasMax {
		return appendUnsigned(append(b, 0), l.Min)
	}
	return appendUnsigned(appendUnsigned(append(b, 1), l.Min), l.Max)
}

func readTableType(r *reader) TableType {
	return TableType{Element: readReferenceType(r), Limits: readLimits(r)}
}

func appendTableType(b []byte, t TableType) []byte {
	return appendLimits(appendValueType(b, t.Element), t.Limits)
}

func readGlobalType(r *reader) GlobalType {
	t := GlobalType{Type: readValueType(r)}
	start := r.pos
	flag := r.byte("mutability")
	if flag > 1 {
		r.failAt(start, "mutability: %#x is neither 0 (constant) nor 1 (variable)", flag)
	}
	t.Mutable = flag == 1
	return t
}

func appendGlobalType(b []byte, t GlobalType) []byte {
	if t.Mutable {
		return append(appendValueType(b, t.Type), 1)
	}
	return append(appendValueType(b, t.Type), 0)
}
