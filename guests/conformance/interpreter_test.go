package conformance

import (
	"context"
	"encoding/binary"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/guests/abi"
)

// A recorder answers the interpreter's host calls from a body in small pieces,
// and remembers all others.
type recorder struct {
	body    string
	calls   []string // name and arguments
	args    [][]uint64
	written []byte
	results map[string]int32 // zero for what is not in it
}

func (r *recorder) call(name string, memory api.Memory, args []uint64) int32 {
	switch name {
	case "read":
		return r.read(memory, args)
	case "write":
		n := min(args[2], 1000) // fewer than asked for
		b, _ := memory.Read(uint32(args[1]), uint32(n))
		r.written = append(r.written, b...)
		return int32(n)
	}
	r.calls, r.args = append(r.calls, name), append(r.args, args)
	return r.results[name]
}

func (r *recorder) read(memory api.Memory, args []uint64) int32 {
	n := min(len(r.body), int(args[2]), 700)
	memory.WriteString(uint32(args[1]), r.body[:n])
	r.body = r.body[n:]
	return int32(n)
}

// interpretOn runs a script on the recorder and returns the result of
// edgehost_handle.
func interpretOn(t *testing.T, r *recorder, s *script) (int32, error) {
	t.Helper()
	ctx := t.Context()
	r.body = string(s.program("test")) + r.body
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	host := rt.NewHostModuleBuilder(abi.Module)
	for _, f := range abi.Functions() {
		params := make([]api.ValueType, len(f.Params))
		for i, p := range f.Params {
			params[i] = api.ValueType(p)
		}
		host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			stack[0] = uint64(uint32(r.call(f.Name, m.Memory(), slices.Clone(stack[:len(f.Params)]))))
		}), params, []api.ValueType{api.ValueTypeI32}).Export(f.Name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	guest, err := rt.Instantiate(ctx, interpreter())
	if err != nil {
		t.Fatal(err)
	}
	results, err := guest.ExportedFunction(abi.ExportHandle).Call(ctx)
	if err != nil {
		return 0, err
	}
	return int32(uint32(results[0])), nil
}

func TestInterpreterPassesArgumentsAndLeavesResults(t *testing.T) {
	s := &script{}
	word := s.cell(8)
	text := s.text("some text")
	h := s.call("fetch", text, 0, 0, abi.BodyStream, abi.FlagNoBlock).gives(s, 7)
	s.call("store", word, h).gives(s, 0)
	s.call("state_put", text, text, load(word), h, 0, 0, word).fails(s, abi.Conflict)
	s.call("wait", 0, 0, -1).gives(s, 0)
	s.word(word, 0, func(n uint64) bool { return uint32(n) == 7 }, "7 below")
	size := len(s.data)

	r := &recorder{results: map[string]int32{"fetch": 7, "state_put": int32(abi.Conflict)}}
	if result, err := interpretOn(t, r, s); result != 0 || err != nil {
		t.Fatalf("result %d, %v", result, err)
	}
	if diff := cmp.Diff([]string{"fetch", "state_put", "wait", "response_head"}, r.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	p, high := uint64(text.p), uint64(filler<<24|filler<<16|filler<<8|filler)
	want := [][]uint64{
		{p, 9, 0, 0, abi.BodyStream, abi.FlagNoBlock},
		{p, 9, p, 9, high<<32 | 7, 7, 0, 0, uint64(word.p)},
		{0, 0, 1<<64 - 1},
		{200, 0, 0, 0},
	}
	for i, args := range r.args {
		if !slices.EqualFunc(want[i], args, func(a, b uint64) bool { return a == b || uint32(a) == uint32(b) && b>>32 == 0 }) {
			t.Errorf("%s was called with %x, want %x", r.calls[i], args, want[i])
		}
	}
	for _, err := range s.verify(r.written, size) {
		t.Error(err)
	}
}

func TestInterpreterReadsAndDrainsToTheEnd(t *testing.T) {
	s := &script{}
	buf := s.buffer(2000)
	s.call("read all", abi.HandleRequestBody, buf).gives(s, 2000)
	s.call("drain", abi.HandleRequestBody).gives(s, 5000)
	s.call("read all", abi.HandleRequestBody, buf).gives(s, 0)
	s.holds(buf, strings.Repeat("x", 2000))
	r := &recorder{body: strings.Repeat("x", 7000)}
	if _, err := interpretOn(t, r, s); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.verify(r.written, 2000) {
		t.Error(err)
	}
}

func TestInterpreterEndsAsItIsTold(t *testing.T) {
	ends := &script{answer: noResults}
	ends.call("end", -5)
	ends.call("trap")
	if result, err := interpretOn(t, &recorder{}, ends); result != -5 || err != nil {
		t.Errorf("result %d, %v", result, err)
	}
	traps := &script{answer: noResults}
	traps.call("trap")
	if _, err := interpretOn(t, &recorder{}, traps); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("ended with %v", err)
	}
}

// scripts are those of all cases.
func scripts() []*script {
	var all []*script
	for _, c := range allCases("http://127.0.0.1:1") {
		for _, write := range []func(*script){c.script, c.before} {
			if write != nil {
				s := &script{}
				write(s)
				all = append(all, s)
			}
		}
	}
	return all
}

func TestEveryFunctionIsCheckedForSuccessAndRefusal(t *testing.T) {
	seen := make(map[string]map[outcome]bool)
	for _, s := range scripts() {
		for _, st := range s.steps {
			if seen[st.name] == nil {
				seen[st.name] = make(map[outcome]bool)
			}
			seen[st.name][st.wanted] = true
		}
	}
	for _, f := range abi.Functions() {
		later := strings.HasPrefix(f.Name, "reserve") || strings.HasPrefix(f.Name, "cache")
		if !seen[f.Name][refusal] && f.Name != "abi" {
			t.Errorf("no case expects %s to refuse", f.Name)
		}
		viaLoop := f.Name == "read" || f.Name == "write"
		if !seen[f.Name][success] && !later && !viaLoop {
			t.Errorf("no case expects %s to succeed", f.Name)
		}
	}
}

func TestScriptsFitIntoTheGuest(t *testing.T) {
	for i, s := range scripts() {
		program := s.program("name")
		if len(program) > drainAt-programAt {
			t.Errorf("script %d has %d bytes", i, len(program))
		}
		if n := binary.LittleEndian.Uint32(program[4:]); n > maxSteps {
			t.Errorf("script %d has %d operations", i, n)
		}
	}
}

func TestArgumentsAreAsManyAsTheFunctionTakes(t *testing.T) {
	functions := abi.Functions()
	for _, s := range scripts() {
		for _, st := range s.steps {
			if int(st.function) < len(functions) && len(functions[st.function].Params) != len(st.arguments) {
				t.Errorf("%s with %d arguments", st.name, len(st.arguments))
			}
		}
	}
}

func contract(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../abi/ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryCaseNamesARule(t *testing.T) {
	text := contract(t)
	names := make(map[string]bool)
	for _, c := range allCases("") {
		if name := c.rule + " " + c.name; names[name] {
			t.Errorf("two cases are called %q", name)
		} else {
			names[name] = true
		}
		major, minor, ok := strings.Cut(c.rule, ".")
		heading := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(c.rule) + `\.? `)
		if heading.MatchString(text) {
			continue
		}
		section := regexp.MustCompile(`(?ms)^## ` + major + `\. .*?(^## |\z)`).FindString(text)
		if !ok || !regexp.MustCompile(`(?m)^`+minor+`\. `).MatchString(section) {
			t.Errorf("ABI.md has no rule %s", c.rule)
		}
	}
}

func TestFailAnswersAreThoseOfTheContract(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| (-\\d+) \\| `(\\w+)` \\|.*\\| (\\d+) `(\\w+)` \\|$")
	documented := make(map[abi.Code]failAnswer)
	for _, m := range row.FindAllStringSubmatch(contract(t), -1) {
		number, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		status, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		code := abi.Code(number)
		documented[code] = failAnswer{status, m[4], failAnswers()[code].later}
	}
	if diff := cmp.Diff(failAnswers(), documented, cmp.AllowUnexported(failAnswer{})); diff != "" {
		t.Errorf("ABI.md differs (-kit +text):\n%s", diff)
	}
}

func TestSDKTableNamesWhatIsRequested(t *testing.T) {
	table, err := os.ReadFile("SDK.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `/(\\w+)").FindAllStringSubmatch(string(table), -1) {
		documented[m[1]] = true
	}
	requested := make(map[string]bool)
	for _, c := range slices.Concat(sdkRequestCases(), sdkAnswerCases(), sdkObjectCases()) {
		requested[regexp.MustCompile(`\w+`).FindString(c.target)] = true
	}
	if diff := cmp.Diff(requested, documented); diff != "" {
		t.Errorf("SDK.md differs (-requested +documented):\n%s", diff)
	}
}
