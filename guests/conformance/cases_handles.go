package conformance

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/edgehost/edgehost/guests/abi"
)

func handleCases() []testCase {
	return []testCase{
		{rule: "4.4", name: "handles that do not exist are not found", script: func(s *script) {
			for _, h := range []int{0, -1, noSuchHandle} {
				s.onHandle(h, abi.NotFound)
			}
		}},
		{rule: "4.4", name: "a closed handle is not found", script: func(s *script) {
			s.call("close", abi.HandleRequestBody).gives(s, 0)
			s.call("read", abi.HandleRequestBody, s.buffer(4), 0).fails(s, abi.NotFound)
			s.call("close", abi.HandleRequestBody).fails(s, abi.NotFound)
			h := s.call("fetch", s.text("up"), s.record(callTo("GET", "/echo")), 0, 0).atLeast(s, 4)
			s.call("close", h).gives(s, 0)
			s.call("fetch_head", h, s.buffer(64), 0).fails(s, abi.NotFound)
		}},
		{rule: "4.4", name: "a handle of the wrong kind is invalid", script: wrongKinds},
		{rule: "4.1", name: "without a function lease its handle is not found", script: func(s *script) {
			s.call("lease_result", abi.HandleFunctionLease, s.cell(abi.LeaseSize), 0).fails(s, abi.NotFound)
			s.call("close", abi.HandleFunctionLease).fails(s, abi.NotFound)
		}},
		{rule: "4.2", name: "handles are above 3 and not used twice", script: func(s *script) {
			var got []*step
			for range 4 {
				h := s.call("admit", s.text("up"), 0).atLeast(s, 4)
				s.call("close", h).gives(s, 0)
				got = append(got, h)
			}
			s.checks = append(s.checks, func(m image) error {
				var numbers []int32
				for _, h := range got {
					numbers = append(numbers, m.results[h.number])
				}
				if slices.Sort(numbers); len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
					return fmt.Errorf("handles %d", numbers)
				}
				return nil
			})
		}},
		{rule: "4.3", name: "open handles are bounded", script: func(s *script) {
			up := s.text("up")
			var last *step
			for range abi.MaxHandles - 2 {
				last = s.call("admit", up, 0)
			}
			last.fails(s, abi.Overloaded)
		}},
	}
}

// onHandle expects one code of every function that takes a handle.
func (s *script) onHandle(h int, want abi.Code) {
	s.call("read", h, s.buffer(4), 0).fails(s, want)
	s.call("write", h, s.text("x"), 0).fails(s, want)
	s.call("flush", h).fails(s, want)
	s.call("finish", h, 0, 0).fails(s, want)
	s.call("trailers", h, s.buffer(4)).fails(s, want)
	s.call("close", h).fails(s, want)
	s.call("fetch_head", h, s.buffer(4), 0).fails(s, want)
	s.call("report", h, abi.OutcomeSuccess).fails(s, want)
	s.call("lease_result", h, s.cell(abi.LeaseSize), 0).fails(s, want)
	s.call("lease_release", h, 0).fails(s, want)
}

func wrongKinds(s *script) {
	const request, answer = abi.HandleRequestBody, abi.HandleResponseBody
	out := s.cell(abi.LeaseSize)
	fetch := s.call("fetch", s.text("up"), s.record(callTo("GET", "/echo")), abi.BodyNone, 0).atLeast(s, 4)
	admission := s.call("admit", s.text("up"), 0).atLeast(s, 4)
	s.call("response_head", 200, 0, 0, 0).gives(s, 0)
	for _, st := range []*step{
		s.call("read", answer, s.buffer(4), 0),
		s.call("read", admission, s.buffer(4), 0),
		s.call("write", request, s.text("x"), 0),
		s.call("write", fetch, s.text("x"), 0), // it has no streamed body
		s.call("flush", request),
		s.call("finish", request, 0, 0),
		s.call("finish", fetch, 0, 0),
		s.call("trailers", answer, s.buffer(4)),
		s.call("fetch_head", request, s.buffer(4), 0),
		s.call("fetch_head", admission, s.buffer(4), 0),
		s.call("report", request, abi.OutcomeSuccess),
		s.call("report", fetch, abi.OutcomeSuccess),
		s.call("lease_result", answer, out, 0),
		s.call("lease_result", fetch, out, 0),
		s.call("lease_release", request, 0),
		s.call("lease_release", admission, 0),
		s.call("state_get", s.text("doc/kinds"), s.text("k"), request, 0, 0, s.cell(8)),
		s.call("state_put", s.text("doc/kinds"), s.text("k"), 0, fetch, 0, 0, s.cell(8)),
	} {
		st.fails(s, abi.Invalid)
	}
	s.call("report", admission, abi.OutcomeSuccess).gives(s, 0) // it is still there
	s.answer = resultsInDump
}

func recordCases() []testCase {
	return []testCase{
		{rule: "6.1", name: "malformed records are invalid", script: func(s *script) {
			whole := header("X-A", "1")
			for _, record := range [][]byte{
				whole[:len(whole)-1], // a field longer than the record
				whole[:3],            // half a field's head
				textField(abi.FieldHeader, "\x09\x00X-A"), // a pair shorter than its name
				textField(abi.FieldHeader, "\x01"),
			} {
				s.call("response_head", 200, s.record(record), 0).fails(s, abi.Invalid)
			}
			short := callTo("GET", "/echo", textField(abi.FieldTimeout, "1234567"))
			s.call("fetch", s.text("up"), s.record(short), 0, 0).fails(s, abi.Invalid)
			wide := callTo("GET", "/echo", numberField(abi.FieldTimeout, 1<<63))
			s.call("fetch", s.text("up"), s.record(wide), 0, 0).fails(s, abi.Invalid)
		}},
		{rule: "6.1", name: "a field that may appear once and appears again is invalid", script: func(s *script) {
			twice := callTo("GET", "/echo", textField(abi.FieldMethod, "PUT"))
			s.call("fetch", s.text("up"), s.record(twice), 0, 0).fails(s, abi.Invalid)
			ttl := numberField(abi.FieldTTL, 1e9)
			s.call("lease_acquire", s.text("doc/twice"), 0, 0, s.record(slices.Concat(ttl, ttl))).fails(s, abi.Invalid)
		}},
		{rule: "6.2", name: "unknown and misplaced fields are unsupported", script: func(s *script) {
			for _, field := range [][]byte{textField(999, "?"), textField(abi.FieldMethod, "GET")} {
				s.call("response_head", 200, s.record(field), 0).fails(s, abi.Unsupported)
				s.call("lease_acquire", s.text("doc/unknown"), 0, 0, s.record(field)).fails(s, abi.Unsupported)
			}
			for _, field := range [][]byte{textField(999, "?"), numberField(abi.FieldTTL, 1)} {
				s.call("fetch", s.text("up"), s.record(callTo("GET", "/echo", field)), 0, 0).fails(s, abi.Unsupported)
			}
		}},
		{rule: "6.2", name: "unknown fields that are optional are ignored", script: func(s *script) {
			optional := textField(999|abi.TagOptional, "?")
			s.call("fetch", s.text("up"), s.record(callTo("GET", "/echo", optional)), 0, 0).atLeast(s, 4)
			s.call("response_head", 200, s.record(append(optional, header("X-A", "1")...)), 0).gives(s, 0)
			s.answer = resultsInDump
		}, check: hasHeader("X-A", "1")},
		{rule: "8", name: "a record above 262,144 bytes is too large", script: func(s *script) {
			large := s.record(header("X-A", string(bytes.Repeat([]byte("v"), abi.MaxHead))))
			s.call("response_head", 200, large, 0).fails(s, abi.TooLarge)
			s.call("fetch", s.text("up"), large, 0, 0).fails(s, abi.TooLarge)
		}},
	}
}

// hasHeader expects a whole response with these values of a field.
func hasHeader(name string, values ...string) func(response) error {
	return func(r response) error {
		if got := r.Header.Values(name); !slices.Equal(got, values) {
			return fmt.Errorf("%s: %q, want %q", name, got, values)
		}
		return r.broken
	}
}
