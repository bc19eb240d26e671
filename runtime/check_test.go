package runtime_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

func TestCheckSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		module []byte
		want   []string
	}{
		"a component":          {conformance.ComponentHeader(), []string{"WebAssembly component", "wasm32-wasip1"}},
		"a text file":          {[]byte("package main"), []string{`"pack"`, "not a WebAssembly module"}},
		"nothing":              {nil, []string{"empty", "build"}},
		"another version":      {[]byte("\x00asm\x02\x00\x00\x00"), []string{"version"}},
		"rubbish after a head": {[]byte("\x00asm\x01\x00\x00\x00\x7f\x7f\x7f"), []string{"not a valid WebAssembly module"}},
		"an unknown function":  {conformance.UnknownImport(abi.Module, "teleport"), []string{"teleport", abi.Module, "later host"}},
		"a later ABI":          {conformance.UnknownImport("edgehost_v2", "read"), []string{"edgehost_v2", "this host has edgehost_v1 only"}},
		"an unknown module":    {conformance.UnknownImport("env", "abort"), []string{`"env"`, "abort"}},
		"another preview":      {conformance.UnknownImport("wasi:http/types", "x"), []string{"WASI preview 1"}},
		"a wrong import":       {conformance.WrongImport(), []string{"edgehost_v1.write", "(i64) -> (i32)", "(i32, i32, i32, i32) -> (i32)"}},
		"too much memory":      {conformance.HugeMemory(2048), []string{"128 MiB", "64 MiB", "raise it"}},
		"no handler":           {conformance.NoHandle(), []string{abi.ExportHandle, "does not export"}},
		"no memory":            {conformance.NoMemory(), []string{`"memory"`, "does not export"}},
		"a handler of a kind":  {conformance.WrongHandle(), []string{abi.ExportHandle, "() -> ()", "() -> i32"}},
		"data nowhere":         {dataAt(t, 64<<10-3), []string{"address 65533", "outside of its memory of 64 KiB"}},
		"a reserved export":    {conformance.ReservedExport(), []string{"edgehost_teleport", "reserved"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := runtime.Check(t.Context(), runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
				{Name: "f", Module: c.module, Routes: []string{"/"}},
			}})
			if err == nil {
				t.Fatal("the module was accepted")
			}
			if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, `function "f": `) {
				t.Errorf("got %q, want one line that names the function", text)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

// dataAt returns a guest with four bytes of data at an address.
func dataAt(tb testing.TB, at int32) []byte {
	tb.Helper()
	m := decode(tb, conformance.Hello())
	m.Datas = append(m.Datas, wasmbin.Data{Offset: append(binary.AppendUvarint([]byte{0x41}, uint64(at)), 0x0b), Init: []byte("data")})
	return m.Encode()
}

func decode(tb testing.TB, module []byte) *wasmbin.Module {
	tb.Helper()
	m, err := wasmbin.Decode(module)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestCheckFindsEverythingAtOnce(t *testing.T) {
	err := runtime.Check(t.Context(), runtime.App{
		Name: "app",
		Functions: []runtime.FunctionConfig{
			{Name: "a", Module: conformance.Hello(), Routes: []string{"GET  /", "/{x"}},
			{Name: "b", Module: conformance.NoMemory(), Routes: []string{"/b"}, Dependencies: []string{"payments"}},
			{Name: "b", Module: conformance.Hello(), Routes: []string{"/b"}, Objects: []string{"a/*/b"}},
			{Name: "c", Module: conformance.Hello(), Memory: 1, MaxLateSettlement: -1},
		},
		Dependencies: []runtime.DependencyConfig{{Name: "d", URL: "ftp://x"}, {Name: "d", URL: "http://x"}},
	})
	if err == nil {
		t.Fatal("the app was accepted")
	}
	for _, want := range []string{
		`function "a": route "/{x"`, `function "b": does not export its memory`, `dependency "payments"`,
		`"b": is there twice`, `conflicts`, `object "a/*/b"`, `"c": has no routes`, "memory 1 ", "max_late_settlement",
		`dependency "d": is there twice`, `"ftp://x"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if runtime.Check(t.Context(), runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "hello", Module: conformance.Hello(), Routes: []string{"/"}},
		{Name: "tools", Module: module(t, guests.tools), Routes: []string{"/tools/"}},
	}}) != nil {
		t.Error("a good app was refused")
	}
}

func TestCheckRefusesACommand(t *testing.T) {
	command, err := build("hello", "default")
	if err != nil {
		t.Fatal(err)
	}
	err = runtime.Check(t.Context(), runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "f", Module: command, Routes: []string{"/"}},
	}})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "-buildmode=c-shared") {
		t.Errorf("got %v, want one line that says how to build it", err)
	}
}

func TestCacheDirectoryMustBePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.Open(t.Context(), runtime.Config{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
	fresh := filepath.Join(t.TempDir(), "a", "b")
	h := open(t, runtime.Config{CacheDir: fresh})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{Name: "f", Module: conformance.Hello()}}})
	info, err := os.Stat(fresh)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want a directory of mode 0700", info.Mode(), err)
	}
	entries, err := filepath.Glob(filepath.Join(fresh, "*", "*"))
	if err != nil || len(entries) == 0 {
		t.Errorf("nothing was kept: %v", err)
	}
}
