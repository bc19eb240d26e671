package wasmbin

// Encode writes m in the shortest binary form. Sections without content are
// left out. Custom sections keep the section they follow; those added later
// come last.
func (m *Module) Encode() []byte {
	b := append(make([]byte, 0, m.sizeHint()), magic...)
	b = append(b, version...)
	b = m.appendCustoms(b, sectionCustom)
	var content []byte
	for _, id := range sectionOrder {
		content = m.appendContent(content[:0], id)
		if len(content) > 0 {
			b = appendUnsigned(append(b, byte(id)), len(content))
			b = append(b, content...)
		}
		b = m.appendCustoms(b, id)
	}
	return b
}

// sizeHint is roughly the size of the encoded module.
func (m *Module) sizeHint() int {
	size := 1 << 10
	for i := range m.Funcs {
		size += len(m.Funcs[i].Body) + 16
	}
	for i := range m.Datas {
		size += len(m.Datas[i].Init) + 16
	}
	for i := range m.Customs {
		size += len(m.Customs[i].Data) + 32
	}
	return size
}

func (m *Module) appendCustoms(b []byte, after section) []byte {
	for i := range m.Customs {
		c := &m.Customs[i]
		if c.after != after {
			continue
		}
		name := appendName(nil, c.Name)
		b = appendUnsigned(append(b, byte(sectionCustom)), len(name)+len(c.Data))
		b = append(append(b, name...), c.Data...)
	}
	return b
}

// appendContent appends what section id holds, nothing if it is not needed.
func (m *Module) appendContent(b []byte, id section) []byte {
	switch id {
	case sectionType:
		return appendSection(b, m.Types, appendFuncType)
	case sectionImport:
		return appendSection(b, m.Imports, appendImport)
	case sectionFunction:
		return appendSection(b, m.Funcs, func(b []byte, f Func) []byte { return appendUnsigned(b, f.Type) })
	case sectionTable:
		return appendSection(b, m.Tables, appendTableType)
	case sectionMemory:
		return appendSection(b, m.Memories, appendLimits)
	case sectionGlobal:
		return appendSection(b, m.Globals, appendGlobal)
	case sectionExport:
		return appendSection(b, m.Exports, appendExport)
	case sectionStart:
		if m.Start != nil {
			return appendUnsigned(b, *m.Start)
		}
	case sectionElement:
		return appendSection(b, m.Elements, appendElement)
	case sectionDataCount:
		if m.DataCount {
			return appendUnsigned(b, len(m.Datas))
		}
	case sectionCode:
		return appendSection(b, m.Funcs, appendCode)
	case sectionData:
		return appendSection(b, m.Datas, appendData)
	case sectionCustom:
	}
	return b
}

func appendSection[T any](b []byte, list []T, element func([]byte, T) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	return appendVector(b, list, element)
}

func appendImport(b []byte, i Import) []byte {
	b = append(appendName(appendName(b, i.Module), i.Name), byte(i.Kind))
	switch i.Kind {
	case ExternFunc:
		return appendUnsigned(b, i.Type)
	case ExternTable:
		return appendTableType(b, i.Table)
	case ExternMemory:
		return appendLimits(b, i.Memory)
	default:
		return appendGlobalType(b, i.Global)
	}
}

func appendExport(b []byte, e Export) []byte {
	return appendUnsigned(append(appendName(b, e.Name), byte(e.Kind)), e.Index)
}

func appendGlobal(b []byte, g Global) []byte {
	return append(appendGlobalType(b, g.Type), g.Init...)
}

func appendElement(b []byte, e Element) []byte {
	b = appendUnsigned(b, uint32(e.Form))
	if e.Form.active() {
		if e.Form&ElementHasTable != 0 {
			b = appendUnsigned(b, e.Table)
		}
		b = append(b, e.Offset...)
	}
	if e.Form&ElementHasExprs == 0 {
		if e.Form.typed() {
			b = append(b, 0) // the kind: functions
		}
		return appendVector(b, e.Funcs, appendUnsigned[uint32])
	}
	if e.Form.typed() {
		b = appendValueType(b, e.Type)
	}
	return appendVector(b, e.Exprs, func(b []byte, x Expr) []byte { return append(b, x...) })
}

func appendData(b []byte, d Data) []byte {
	b = appendUnsigned(b, uint32(d.Form))
	if d.Form == DataActiveInMemory {
		b = append(b, 0)
	}
	if d.Form != DataPassive {
		b = append(b, d.Offset...)
	}
	return append(appendUnsigned(b, len(d.Init)), d.Init...)
}

func appendCode(b []byte, f Func) []byte {
	locals := appendVector(nil, f.Locals, func(b []byte, l Locals) []byte {
		return appendValueType(appendUnsigned(b, l.Count), l.Type)
	})
	b = appendUnsigned(b, len(locals)+len(f.Body))
	return append(append(b, locals...), f.Body...)
}
