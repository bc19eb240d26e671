package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/edgehost/edgehost/guests/abi"
)

// A script is a program for the interpreter, with what must come of it.
type script struct {
	data   []byte
	steps  []*step
	checks []func(image) error
	answer answer
}

// An answer says how the results of a script leave the guest.
type answer int

const (
	resultsInBody   answer = iota // as a response with status 200
	resultsInDump                 // behind the head that the script gives
	resultsUpstream               // in a call to the upstream: the response is the script's
	noResults                     // the response is all there is to see
)

// A step is one operation. As an argument of a later one it stands for its
// result.
type step struct {
	function  uint32
	name      string
	arguments []argument
	number    int
	wanted    outcome
}

// An outcome is the kind of result that a step must have.
type outcome int

const (
	unchecked outcome = iota
	success
	refusal
)

type argument struct {
	mode  uint32
	value uint64
}

// A span is a range in the guest's memory. As an argument it stands for a
// pointer and a length.
type span struct{ p, n uint32 }

// A cell is an aligned place for a result of fixed size. As an argument it
// stands for a pointer.
type cell span

// load stands for the u64 that the cell holds when the call is made.
type load cell

// filler marks memory that nothing has written to.
const filler = 0xaa

// An image is what a script left: the results of its steps and its data.
type image struct {
	results []int32
	data    []byte
}

func (m image) bytes(s span) []byte {
	at := s.p - dataAt
	return m.data[at : at+s.n]
}

const dataAt = programAt + 8

// text puts bytes into the guest's memory.
func (s *script) text(b string) span {
	at := len(s.data)
	s.data = append(s.data, b...)
	return span{uint32(dataAt + at), uint32(len(b))}
}

// record puts a record into the guest's memory.
func (s *script) record(b []byte) span { return s.text(string(b)) }

// buffer reserves n bytes.
func (s *script) buffer(n int) span {
	return s.record(bytes.Repeat([]byte{filler}, n))
}

// cell reserves n bytes at a multiple of eight.
func (s *script) cell(n int) cell {
	s.buffer((8 - len(s.data)%8) % 8)
	return cell(s.buffer(n))
}

// call adds an operation by the name of a host function, or one of the
// interpreter's own.
func (s *script) call(name string, arguments ...any) *step {
	st := &step{function: number(name), name: name, number: len(s.steps)}
	for _, a := range arguments {
		st.arguments = append(st.arguments, encoded(a)...)
	}
	s.steps = append(s.steps, st)
	return st
}

func number(name string) uint32 {
	i := slices.IndexFunc(abi.Functions(), func(f abi.Function) bool { return f.Name == name })
	if i >= 0 {
		return uint32(i)
	}
	return map[string]uint32{
		"end": ownEnd, "trap": ownTrap, "store": ownStore, "read all": ownReadAll, "write all": ownWriteAll, "drain": ownDrain,
	}[name]
}

func encoded(a any) []argument {
	switch a := a.(type) {
	case uint32:
		return []argument{{constant, uint64(a)}}
	case int:
		return []argument{{constant, uint64(a)}}
	case abi.Code:
		return []argument{{constant, uint64(a)}}
	case span:
		return []argument{{constant, uint64(a.p)}, {constant, uint64(a.n)}}
	case cell:
		return []argument{{constant, uint64(a.p)}}
	case load:
		return []argument{{cellAt64, uint64(a.p)}}
	case *step:
		return []argument{{resultOf, uint64(a.number)}}
	}
	panic(fmt.Sprintf("conformance: %T is no argument", a))
}

// gives expects a result.
func (st *step) gives(s *script, want int) *step {
	return st.must(s, success, func(got int32) bool { return got == int32(want) }, "%d", want)
}

// fails expects one of several codes.
func (st *step) fails(s *script, codes ...abi.Code) {
	st.must(s, refusal, func(got int32) bool { return slices.Contains(codes, abi.Code(got)) }, "%v", codes)
}

// atLeast expects a value.
func (st *step) atLeast(s *script, want int) *step {
	return st.must(s, success, func(got int32) bool { return got >= int32(want) }, "at least %d", want)
}

func (st *step) must(s *script, wanted outcome, ok func(int32) bool, format string, args ...any) *step {
	st.wanted = wanted
	s.checks = append(s.checks, func(m image) error {
		got := m.results[st.number]
		if ok(got) {
			return nil
		}
		return fmt.Errorf("call %d, %s: %s, want %s", st.number, st.name, described(got), fmt.Sprintf(format, args...))
	})
	return st
}

func described(result int32) string {
	if result < 0 {
		return abi.Code(result).String()
	}
	return fmt.Sprint(result)
}

// holds expects a span to begin with want.
func (s *script) holds(sp span, want string) {
	s.checks = append(s.checks, func(m image) error {
		if got := m.bytes(sp); !bytes.HasPrefix(got, []byte(want)) {
			return fmt.Errorf("memory holds %q, want %q", got, want)
		}
		return nil
	})
}

// untouched expects that nothing was written to a span.
func (s *script) untouched(sp span) {
	s.checks = append(s.checks, func(m image) error {
		if got := m.bytes(sp); !bytes.Equal(got, bytes.Repeat([]byte{filler}, len(got))) {
			return fmt.Errorf("memory was written to: % x", got)
		}
		return nil
	})
}

// word expects a u64 in a cell.
func (s *script) word(c cell, offset uint32, ok func(uint64) bool, want string) {
	s.checks = append(s.checks, func(m image) error {
		got := binary.LittleEndian.Uint64(m.bytes(span{c.p + offset, 8}))
		if ok(got) {
			return nil
		}
		return fmt.Errorf("the word at %d is %d, want %s", offset, int64(got), want)
	})
}

// fields expects that the record that a step wrote to a span has all of these
// fields, each given as a record.
func (s *script) fields(sp span, length *step, want ...[]byte) {
	s.checks = append(s.checks, func(m image) error {
		size := m.results[length.number]
		if size < 0 || size > int32(sp.n) {
			return fmt.Errorf("no record: %s", described(size))
		}
		record := m.bytes(span{sp.p, uint32(size)})
		for _, field := range want {
			if !hasField(record, field) {
				return fmt.Errorf("record %q lacks %q", record, field)
			}
		}
		return nil
	})
}

// hasField reports whether a well-formed record has the field. The case of the
// name of a header does not matter.
func hasField(record, want []byte) bool {
	wanted, _, _ := abi.Next(want)
	found := false
	for len(record) > 0 {
		f, rest, err := abi.Next(record)
		if err != nil {
			return false
		}
		record = rest
		found = found || f.Tag == wanted.Tag && bytes.EqualFold(f.Value, wanted.Value)
	}
	return found
}

// failure expects what a step, a call of error, wrote to a span.
func (s *script) failure(sp span, length *step, ok func(abi.Failure) bool, want string) {
	s.checks = append(s.checks, func(m image) error {
		size := min(m.results[length.number], int32(sp.n))
		f, err := abi.ParseFailure(m.bytes(span{sp.p, uint32(max(0, size))}))
		if err != nil {
			return err
		}
		if !ok(f) {
			return fmt.Errorf("error told %+v, want %s", f, want)
		}
		return nil
	})
}

// program encodes the script with its size in front. The tag names the place
// where the upstream keeps the results, if they go there.
func (s *script) program(tag string) []byte {
	own := len(s.steps)
	s.leave(tag)
	b := make([]byte, 4, 4+8+len(s.data)+len(s.steps)*operationSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.steps)))
	b = binary.LittleEndian.AppendUint32(b, uint32(8+len(s.data)))
	b = append(b, s.data...)
	for _, st := range s.steps {
		b = st.append(b)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	s.steps = s.steps[:own]
	return b
}

// leave adds the operations by which the results leave the guest.
func (s *script) leave(tag string) {
	results, data := span{resultsAt, uint32(4 * len(s.steps))}, span{dataAt, uint32(len(s.data))}
	switch s.answer {
	case noResults:
	case resultsInBody:
		s.call("response_head", 200, 0, 0, 0)
		s.dump(abi.HandleResponseBody, results, data)
	case resultsInDump:
		s.dump(abi.HandleResponseBody, results, data)
	case resultsUpstream:
		call := abi.AppendText(nil, abi.FieldMethod, "POST")
		call = abi.AppendText(call, abi.FieldTarget, "/results/"+tag)
		h := s.call("fetch", s.text("up"), s.record(call), abi.BodyStream, 0)
		s.dump(h, results, data)
		s.call("finish", h, 0, 0)
		s.call("drain", h)
	}
}

func (s *script) dump(handle any, results, data span) {
	s.call("write all", handle, results)
	s.call("write all", handle, data)
}

func (st *step) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, st.function)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for i := range maxArguments {
		var a argument
		if i < len(st.arguments) {
			a = st.arguments[i]
		}
		b = binary.LittleEndian.AppendUint32(b, a.mode)
		b = binary.LittleEndian.AppendUint64(b, a.value)
	}
	return b
}

// verify checks what the guest left.
func (s *script) verify(left []byte, dataSize int) []error {
	if len(left) != 4*len(s.steps)+dataSize {
		return []error{fmt.Errorf("the guest left %d bytes, want %d: %.200q", len(left), 4*len(s.steps)+dataSize, left)}
	}
	m := image{data: left[4*len(s.steps):]}
	for i := range s.steps {
		m.results = append(m.results, int32(binary.LittleEndian.Uint32(left[4*i:])))
	}
	var errs []error
	for _, check := range s.checks {
		if err := check(m); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// outside is an address beyond the memory of any guest of the kit.
const outside = math.MaxUint32 - 7
