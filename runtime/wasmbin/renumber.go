package wasmbin

import "strings"

// eachConstExpr calls visit for every instruction of the constant expressions
// of the module, which visit may change.
func (m *Module) eachConstExpr(visit func(*instruction)) {
	for i := range m.Globals {
		m.Globals[i].Init = visitInstrs(m.Globals[i].Init, visit)
	}
	for i := range m.Elements {
		e := &m.Elements[i]
		e.Offset = visitInstrs(e.Offset, visit)
		for j := range e.Exprs {
			e.Exprs[j] = visitInstrs(e.Exprs[j], visit)
		}
	}
	for i := range m.Datas {
		m.Datas[i].Offset = visitInstrs(m.Datas[i].Offset, visit)
	}
}

func visitInstrs(x Expr, visit func(*instruction)) Expr {
	r := &reader{buf: x}
	out := make(Expr, 0, len(x))
	var in instruction
	for r.remaining() > 0 {
		in.next(r)
		visit(&in)
		out = appendInstr(out, &in)
	}
	return out
}

// eachElement calls visit for every function index of the element segments that
// are not written as expressions, which visit may change.
func (m *Module) eachElement(visit func(*uint32)) {
	for i := range m.Elements {
		for j := range m.Elements[i].Funcs {
			visit(&m.Elements[i].Funcs[j])
		}
	}
}

// shiftFuncs makes room for added imports, which come after the imports that
// the module has: every function defined in the module gets a number higher by
// n. Code is left to the caller.
func (m *Module) shiftFuncs(imported, n uint32) {
	shift := func(index *uint32) {
		if *index >= imported {
			*index += n
		}
	}
	m.eachElement(shift)
	m.eachConstExpr(func(in *instruction) {
		if in.op == opRefFunc && in.imm[0] >= int64(imported) {
			in.imm[0] += int64(n)
		}
	})
	for i := range m.Exports {
		if m.Exports[i].Kind == ExternFunc {
			shift(&m.Exports[i].Index)
		}
	}
	if m.Start != nil {
		start := *m.Start
		shift(&start)
		m.Start = &start
	}
	m.rewriteCustoms(shift)
}

// rewriteCustoms renumbers the name section and drops debugging sections, whose
// offsets into the code no longer hold.
func (m *Module) rewriteCustoms(shift func(*uint32)) {
	kept := make([]Custom, 0, len(m.Customs))
	for _, c := range m.Customs {
		switch {
		case strings.HasPrefix(c.Name, ".debug_"), strings.HasPrefix(c.Name, "reloc."), c.Name == "linking", c.Name == "sourceMappingURL":
			continue
		case c.Name == "name":
			data, ok := renumberNames(c.Data, shift)
			if !ok {
				continue
			}
			c.Data = data
		}
		kept = append(kept, c)
	}
	m.Customs = kept
}

// The subsections of the name section that speak of functions (core
// specification 7.4.1 and the extended name section proposal).
const (
	namesFunctions = 1
	namesLocals    = 2
	namesLabels    = 3
)

// renumberNames rewrites the function indices of a name section. Names of
// labels are dropped, because rewritten code has other labels. A malformed
// section is reported as not ok; it is no reason to refuse a module (core
// specification 7.4.1).
func renumberNames(data []byte, shift func(*uint32)) (out []byte, ok bool) {
	r := &reader{buf: data, where: "name section"}
	for r.remaining() > 0 {
		id := r.byte("subsection")
		body := r.sub(r.count("bytes"), "name subsection")
		var content []byte
		switch id {
		case namesFunctions:
			content = renumberMap(body, shift, func(b []byte, r *reader) []byte {
				return appendName(b, r.name("name"))
			})
		case namesLocals:
			content = renumberMap(body, shift, appendNameMap)
		case namesLabels:
			continue
		default:
			content = body.take(body.remaining(), "content")
		}
		r.adopt(body)
		out = append(appendUnsigned(append(out, id), len(content)), content...)
	}
	return out, !r.failed()
}

// renumberMap copies a map from function index to something that copyValue
// copies.
func renumberMap(r *reader, shift func(*uint32), copyValue func([]byte, *reader) []byte) []byte {
	n := r.count("entries")
	b := appendUnsigned(nil, n)
	for range n {
		index := r.u32("function")
		shift(&index)
		b = copyValue(appendUnsigned(b, index), r)
		if r.failed() {
			return nil
		}
	}
	return b
}

func appendNameMap(b []byte, r *reader) []byte {
	n := r.count("entries")
	b = appendUnsigned(b, n)
	for range n {
		b = appendUnsigned(b, r.u32("index"))
		b = appendName(b, r.name("name"))
		if r.failed() {
			return nil
		}
	}
	return b
}
