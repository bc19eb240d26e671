package wasmbin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// specDir is wazero's copy of the specification tests.
func specDir(tb testing.TB) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		tb.Fatalf("find wazero's source: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
}

func specFiles(tb testing.TB, pattern string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(specDir(tb), pattern))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no specification tests match %s: %v", pattern, err)
	}
	return files
}

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// script is a specification test as wast2json writes it.
type script struct {
	Commands []command `json:"commands"`
}

type command struct {
	Type       string `json:"type"`
	Line       int    `json:"line"`
	Name       string `json:"name"`
	Filename   string `json:"filename"`
	As         string `json:"as"`
	ModuleType string `json:"module_type"`
	Action     struct {
		Type   string  `json:"type"`
		Module string  `json:"module"`
		Field  string  `json:"field"`
		Args   []value `json:"args"`
	} `json:"action"`
}

type value struct {
	Type     string          `json:"type"`
	LaneType string          `json:"lane_type"`
	Value    json.RawMessage `json:"value"`
}

// words encodes a value as wazero takes it.
func (v value) words(t *testing.T) []uint64 {
	t.Helper()
	if v.Type != "v128" {
		var s string
		if err := json.Unmarshal(v.Value, &s); err != nil {
			t.Fatal(err)
		}
		if s == "null" {
			return []uint64{0}
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if v.Type == "externref" {
			n++ // zero is null
		}
		return []uint64{n}
	}
	var lanes []string
	if err := json.Unmarshal(v.Value, &lanes); err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, 2)
	width := 128 / len(lanes)
	for i, lane := range lanes {
		n, err := strconv.ParseUint(lane, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		bit := i * width
		words[bit/64] |= n << (bit % 64)
	}
	return words
}

// world is a store in which a script runs.
type world struct {
	*host
	rewrite func([]byte) ([]byte, error)
	named   map[string]api.Module
	last    api.Module
	origin  *origin // of last, if it can be restored
}

func newWorld(t *testing.T, rewrite func([]byte) ([]byte, error)) *world {
	t.Helper()
	w := &world{host: newHost(t, false), rewrite: rewrite, named: map[string]api.Module{}}
	w.register(t, "spectest", read(t, filepath.Join(specDir(t), "testdata", "spectest.wasm")))
	return w
}

func (w *world) register(t *testing.T, name string, wasm []byte) {
	t.Helper()
	if _, err := w.rt.InstantiateWithConfig(t.Context(), wasm, wazero.NewModuleConfig().WithName(name)); err != nil {
		t.Fatal(err)
	}
}

// outcome is what both worlds must agree on.
type outcome struct {
	Results []uint64
	Failed  string
}

// load instantiates a module, under its registered name if it has one.
func (w *world) load(ctx context.Context, wasm []byte, name string) (api.Module, error) {
	wasm, err := w.rewrite(wasm)
	if err != nil {
		return nil, err
	}
	m, err := w.rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(name))
	if err != nil {
		return nil, err
	}
	return m, begin(ctx, m, wasm)
}

func (w *world) run(t *testing.T, c command, wasm []byte, name string) outcome {
	t.Helper()
	ctx := context.Background()
	switch c.Type {
	case "module":
		w.replay(t)
		m, err := w.load(ctx, wasm, name)
		if err != nil {
			t.Fatalf("line %d: %v", c.Line, err)
		}
		if w.last = m; c.Name != "" {
			w.named[c.Name] = m
		}
		w.origin = w.originOf(t, m, wasm)
		return outcome{}
	case "assert_invalid", "assert_malformed", "assert_unlinkable", "assert_uninstantiable":
		m, err := w.load(ctx, wasm, "")
		if err != nil {
			return outcome{Failed: "not instantiated"}
		}
		_ = m.Close(ctx)
		return outcome{}
	}
	m := w.last
	if c.Action.Module != "" {
		m = w.named[c.Action.Module]
	}
	if c.Action.Type == "get" {
		return outcome{Results: []uint64{m.ExportedGlobal(c.Action.Field).Get()}}
	}
	if counter, ok := m.ExportedGlobal(wasmbin.CounterExport).(api.MutableGlobal); ok { // a trap left it behind
		counter.Set(uint64(wasmbin.NewCounter(0, wasmbin.DefaultDepth)))
	}
	o := w.invoke(t, m.ExportedFunction(c.Action.Field), c.Action.Args)
	if m == w.last && w.origin != nil {
		w.origin.calls = append(w.origin.calls, call{c, o})
	}
	return o
}

func (w *world) invoke(t *testing.T, f api.Function, values []value) outcome {
	t.Helper()
	var args []uint64
	for _, v := range values {
		args = append(args, v.words(t)...)
	}
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		return outcome{Failed: reason(err)}
	}
	for i, typ := range f.Definition().ResultTypes() {
		if typ == api.ValueTypeExternref || int(typ) == 0x70 { // addresses differ
			results[min(i, len(results)-1)] = 0
		}
	}
	return outcome{Results: results}
}

// reason is the trap of an error, without the stack.
func reason(err error) string {
	if errors.Is(err, errTooDeep) {
		return "stack overflow"
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	line, _, _ = strings.Cut(line, " (recovered")
	return strings.TrimPrefix(line, "wasm error: ")
}

// aliases maps every module command to the name under which it is registered
// later: wazero links by the name given at instantiation.
func aliases(commands []command) map[int]string {
	names := map[int]string{}
	byName := map[string]int{}
	last := -1
	for i, c := range commands {
		switch c.Type {
		case "module":
			if last = i; c.Name != "" {
				byName[c.Name] = i
			}
		case "register":
			at := last
			if c.Name != "" {
				at = byName[c.Name]
			}
			names[at] = c.As
		}
	}
	return names
}

func TestSpecScriptsRunTheSameWhenMetered(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"v1", "v2"} {
		for _, path := range specFiles(t, filepath.Join(release, "testdata", "*.json")) {
			name := fmt.Sprintf("%s/%s", release, strings.TrimSuffix(filepath.Base(path), ".json"))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runScript(t, path, meter)
			})
		}
	}
}

// meter is what is done to a module that a host is to stop.
func meter(b []byte) ([]byte, error) {
	m, err := wasmbin.Decode(b)
	if err != nil {
		return nil, err
	}
	if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); err != nil {
		return nil, err
	}
	return m.Encode(), nil
}

// runScript runs a script with modules as they are and with rewritten ones.
func runScript(t *testing.T, path string, rewrite func([]byte) ([]byte, error)) {
	t.Helper()
	var s script
	if err := json.Unmarshal(read(t, path), &s); err != nil {
		t.Fatal(err)
	}
	plain := newWorld(t, func(b []byte) ([]byte, error) { return b, nil })
	rewritten := newWorld(t, rewrite)
	names := aliases(s.Commands)
	for i, c := range s.Commands {
		if c.Type == "register" || c.ModuleType == "text" {
			continue
		}
		var wasm []byte
		if c.Filename != "" {
			wasm = read(t, filepath.Join(filepath.Dir(path), c.Filename))
		}
		want := plain.run(t, c, wasm, names[i])
		got := rewritten.run(t, c, bytes.Clone(wasm), names[i])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line %d, %s %s %s: rewritten differs (-plain +rewritten):\n%s", c.Line, c.Type, c.Filename, c.Action.Field, diff)
		}
	}
	rewritten.replay(t)
}
