package runtime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

const (
	wasmMagic        = "\x00asm"
	wasmVersion      = "\x01\x00\x00\x00"
	componentVersion = "\x0d\x00\x01\x00"
)

// checkBinary says what is wrong with a module that can be seen before it is
// compiled.
func checkBinary(module []byte, limit uint32) error {
	switch {
	case len(module) == 0:
		return errors.New("the module is empty: build it first")
	case !bytes.HasPrefix(module, []byte(wasmMagic)):
		return fmt.Errorf("not a WebAssembly module: it begins with %q, not with %q; name the .wasm file that the compiler wrote", head(module), wasmMagic)
	case bytes.HasPrefix(module[4:], []byte(componentVersion)):
		return errors.New("a WebAssembly component, which this host does not run: build a core module for WASI preview 1, such as target wasm32-wasip1 in place of wasm32-wasip2")
	case !bytes.HasPrefix(module[4:], []byte(wasmVersion)):
		return fmt.Errorf("WebAssembly version %x is not known: build a core module of version 1", head(module[4:]))
	}
	if pages := minimumMemory(module[8:]); pages > uint64(limit) {
		return fmt.Errorf("needs %s of memory from the start, and the function's memory is %s: raise it, or build with less", kibibytes(pages), kibibytes(uint64(limit)))
	}
	return nil
}

func head(b []byte) []byte { return b[:min(4, len(b))] }

func kibibytes(pages uint64) string {
	if size := pages * pageSize; size%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", size>>20)
	}
	return fmt.Sprintf("%d KiB", pages*pageSize>>10)
}

// minimumMemory returns the pages of the first memory that the sections define.
// It finds none in sections that are malformed: the compiler says what is wrong
// with those.
func minimumMemory(sections []byte) uint64 {
	const memorySection = 5
	for len(sections) > 1 {
		id := sections[0]
		size, n := binary.Uvarint(sections[1:])
		if n <= 0 || uint64(len(sections)-1-n) < size {
			return 0
		}
		body := sections[1+n:]
		if id != memorySection {
			sections = body[size:]
			continue
		}
		body = body[:size]
		if count, n := binary.Uvarint(body); n > 0 && count > 0 && len(body) > n+1 {
			pages, _ := binary.Uvarint(body[n+1:]) // after the flags
			return pages
		}
		return 0
	}
	return 0
}

// checkCompiled says what keeps a module from being a guest of this host. The
// host's own modules are instantiated in r.
func checkCompiled(m wazero.CompiledModule, r wazero.Runtime, data wasmbin.Image) error {
	return errors.Join(checkExports(m), checkImports(m, r), checkData(m, data))
}

// checkData says whether there is data outside of the memory, without which no
// instance can begin.
func checkData(m wazero.CompiledModule, data wasmbin.Image) error {
	memory, ok := m.ExportedMemories()[abi.ExportMemory]
	if !ok {
		return nil // checkExports says so
	}
	pages := uint64(memory.Min())
	for at, b := range data.Segments() {
		if uint64(at)+uint64(len(b)) > pages*pageSize {
			return fmt.Errorf("has data at address %d, which is outside of its memory of %s", at, kibibytes(pages))
		}
	}
	return nil
}

func checkExports(m wazero.CompiledModule) error {
	functions := m.ExportedFunctions()
	var errs []error
	if _, ok := m.ExportedMemories()[abi.ExportMemory]; !ok {
		errs = append(errs, fmt.Errorf("does not export its memory as %q", abi.ExportMemory))
	}
	_, start := functions["_start"]
	_, initialize := functions[abi.ExportInit]
	handle, ok := functions[abi.ExportHandle]
	switch {
	case start && !initialize:
		errs = append(errs, fmt.Errorf("a command, which runs once and ends (it exports _start and no %s): build a reactor, in Go with -buildmode=c-shared, in C with -mexec-model=reactor", abi.ExportInit))
	case !ok:
		errs = append(errs, fmt.Errorf("does not export %s: it is not an edgehost function, or does not import an SDK", abi.ExportHandle))
	case !hasType(handle, nil, []api.ValueType{api.ValueTypeI32}):
		errs = append(errs, fmt.Errorf("exports %s as %s: it must be () -> i32", abi.ExportHandle, typeOf(handle)))
	}
	for _, name := range []string{abi.ExportInit, abi.ExportResume} {
		if f, ok := functions[name]; ok && !hasType(f, nil, nil) {
			errs = append(errs, fmt.Errorf("exports %s as %s: it must be () -> ()", name, typeOf(f)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if strings.HasPrefix(name, abi.ReservedPrefix) && name != abi.ExportHandle && name != abi.ExportResume {
			errs = append(errs, fmt.Errorf("exports %s: names that begin with %s are reserved, and this one belongs to no version that this host knows", name, abi.ReservedPrefix))
		}
	}
	return errors.Join(errs...)
}

func checkImports(m wazero.CompiledModule, r wazero.Runtime) error {
	var errs []error
	if len(m.ImportedMemories()) > 0 {
		errs = append(errs, errors.New("imports its memory: it must define and export it"))
	}
	unknown := make(map[string][]string)
	for _, f := range m.ImportedFunctions() {
		from, name, _ := f.Import()
		host := r.Module(from)
		if host == nil {
			unknown[from] = append(unknown[from], name)
			continue
		}
		own, ok := host.ExportedFunctionDefinitions()[name]
		switch {
		case !ok:
			unknown[from] = append(unknown[from], name)
		case !hasType(f, own.ParamTypes(), own.ResultTypes()):
			errs = append(errs, fmt.Errorf("imports %s.%s as %s: it is %s", from, name, typeOf(f), typeOf(own)))
		}
	}
	for _, from := range slices.Sorted(maps.Keys(unknown)) {
		errs = append(errs, unknownImports(from, unknown[from]))
	}
	return errors.Join(errs...)
}

func unknownImports(from string, names []string) error {
	slices.Sort(names)
	list := strings.Join(slices.Compact(names), ", ")
	switch {
	case from == abi.Module:
		return fmt.Errorf("imports %s from %s, which version 1.%d does not have: it was built for a later host", list, from, abi.Minor)
	case from == wasi_snapshot_preview1.ModuleName:
		return fmt.Errorf("imports %s from %s, which does not have it", list, from)
	case strings.HasPrefix(from, "edgehost_v"):
		return fmt.Errorf("imports %s from %s: this host has %s only, so the function needs a later one", list, from, abi.Module)
	case strings.HasPrefix(from, "wasi:") || from == "wasi_unstable":
		return fmt.Errorf("imports %s from %s: this host has WASI preview 1 (%s) only", list, from, wasi_snapshot_preview1.ModuleName)
	}
	return fmt.Errorf("imports %s from the unknown module %q: this host has %s and %s", list, from, abi.Module, wasi_snapshot_preview1.ModuleName)
}

func hasType(f api.FunctionDefinition, params, results []api.ValueType) bool {
	return slices.Equal(f.ParamTypes(), params) && slices.Equal(f.ResultTypes(), results)
}

func typeOf(f api.FunctionDefinition) string {
	list := func(types []api.ValueType) string {
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = api.ValueTypeName(t)
		}
		return "(" + strings.Join(names, ", ") + ")"
	}
	return list(f.ParamTypes()) + " -> " + list(f.ResultTypes())
}

// Advise returns what is worth knowing about a function that Check has no fault
// with, one sentence each.
func Advise(f FunctionConfig) []string {
	if f.Isolation != IsolationRequest {
		return nil
	}
	m, err := wasmbin.Decode(f.Module)
	if err != nil {
		return nil // Check says so
	}
	draws := slices.ContainsFunc(m.Imports, func(i wasmbin.Import) bool { return i.Name == "random_get" })
	resumes := slices.ContainsFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == abi.ExportResume })
	switch err := wasmbin.Expose(m); {
	case err != nil:
		return []string{fmt.Sprintf("every request starts an instance of its own, which takes longer than to restore one: %v", err)}
	case draws && !resumes:
		return []string{"random numbers that it draws in its initialization are the same for all requests: in Go those are the state of math/rand and the seeds of maps and maphash, but not crypto/rand"}
	}
	return nil
}
