package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/edgehost/edgehost/guests/abi"
)

// lacks expects that the record that a step wrote to a span has no field of
// which unwanted is true.
func (s *script) lacks(sp span, length *step, unwanted func(abi.Field) bool) {
	s.checks = append(s.checks, func(m image) error {
		record := m.bytes(span{sp.p, uint32(min(max(0, m.results[length.number]), int32(sp.n)))})
		for len(record) > 0 {
			f, rest, err := abi.Next(record)
			if err != nil {
				return err
			}
			if record = rest; unwanted(f) {
				return fmt.Errorf("the record has field %d, %q", f.Tag, f.Value)
			}
		}
		return nil
	})
}

// isHeader is for lacks.
func isHeader(names ...string) func(abi.Field) bool {
	return func(f abi.Field) bool {
		name, _, _ := f.Pair()
		for _, n := range names {
			if f.Tag == abi.FieldHeader && strings.EqualFold(string(name), n) {
				return true
			}
		}
		return false
	}
}

func pathValue(name, value string) []byte {
	return abi.AppendPair(nil, abi.FieldPathValue, name, value)
}

func chunked(r *http.Request) { r.ContentLength = -1 }

func requestCases() []testCase {
	return []testCase{
		{rule: "7.3", name: "the head tells all about the request", target: "/items/a%2Fb/c/d?q=1%20", request: func(r *http.Request) {
			r.Method, r.Host = http.MethodPut, "shop.example.com"
			r.Header = http.Header{"X-A": {"1", "2"}, "Cookie": {"c=1"}}
		}, script: func(s *script) {
			head := s.buffer(4096)
			n := s.call("request_head", head).atLeast(s, 1)
			s.fields(head, n,
				textField(abi.FieldMethod, "PUT"), textField(abi.FieldTarget, "/items/a%2Fb/c/d?q=1%20"),
				textField(abi.FieldProtocol, "HTTP/1.1"), textField(abi.FieldHost, "shop.example.com"),
				textField(abi.FieldScheme, "http"), textField(abi.FieldRoute, "/items/{id}/{rest...}"),
				pathValue("id", "a/b"), pathValue("rest", "c/d"),
				header("X-A", "1"), header("X-A", "2"), header("Cookie", "c=1"))
			s.hasOnce(head, n, abi.FieldRemote, abi.FieldRequestID, abi.FieldContentLength)
			again := s.buffer(4096)
			s.call("request_head", again)
			s.same(head, again)
		}},
		{rule: "6.3", name: "values of one name stay in order", request: func(r *http.Request) {
			r.Header["X-A"] = []string{"3", "1", "2"}
		}, script: func(s *script) {
			head := s.buffer(4096)
			s.call("request_head", head).atLeast(s, 1)
			s.checks = append(s.checks, func(m image) error {
				b := m.bytes(head)
				three, one, two := bytes.Index(b, []byte("X-A3")), bytes.Index(b, []byte("X-A1")), bytes.Index(b, []byte("X-A2"))
				if three < 0 || three > one || one > two {
					return fmt.Errorf("values at %d, %d, %d", three, one, two)
				}
				return nil
			})
		}},
		{rule: "6.3", name: "fields of one connection do not reach the guest", request: func(r *http.Request) {
			for _, name := range []string{"Te", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "X-Drop", "X-Keep"} {
				r.Header.Set(name, "v")
			}
			r.Header.Set("Connection", "keep-alive, X-Drop")
		}, script: func(s *script) {
			head := s.buffer(4096)
			n := s.call("request_head", head).atLeast(s, 1)
			s.fields(head, n, header("X-Keep", "v"))
			s.lacks(head, n, isHeader("Te", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "X-Drop", "Connection", "Host", "Transfer-Encoding"))
		}},
		{rule: "7.3", name: "an unknown length is not told", request: chunked, script: func(s *script) {
			head := s.buffer(4096)
			n := s.call("request_head", head).atLeast(s, 1)
			s.lacks(head, n, func(f abi.Field) bool { return f.Tag == abi.FieldContentLength })
		}},
	}
}

func requestBodyCases() []testCase {
	return []testCase{
		{rule: "7.4", name: "read takes what is there, and zero is the end again and again", body: "abc", script: func(s *script) {
			buf := s.buffer(8)
			s.call("read", abi.HandleRequestBody, 0, 0, 0).fails(s, abi.Invalid)
			s.call("read all", abi.HandleRequestBody, buf).gives(s, 3)
			s.call("read", abi.HandleRequestBody, s.buffer(8), 0).gives(s, 0)
			s.call("read", abi.HandleRequestBody, s.buffer(8), 0).gives(s, 0)
			s.holds(buf, "abc\xaa")
		}},
		{rule: "7.4", name: "a body is read piece by piece", body: strings.Repeat("0123456789", 20_000), request: chunked, script: func(s *script) {
			first := s.buffer(3)
			s.call("read all", abi.HandleRequestBody, first).gives(s, 3)
			s.holds(first, "012")
			s.call("drain", abi.HandleRequestBody).gives(s, 200_000-3)
		}},
		{rule: "3.8", name: "a read that would wait answers again", hold: true, script: func(s *script) {
			buf := s.buffer(3)
			s.call("read", abi.HandleRequestBody, buf, abi.FlagNoBlock).fails(s, abi.Again)
			s.untouched(buf)
		}},
		{rule: "7.3", name: "the body may be read after the answer has begun", hold: true, script: func(s *script) {
			buf := s.buffer(4)
			s.call("response_head", 200, 0, 0, 0).gives(s, 0)
			s.call("flush", abi.HandleResponseBody).gives(s, 0)
			s.call("read all", abi.HandleRequestBody, buf).gives(s, 3)
			s.holds(buf, "end")
			s.answer = resultsInDump
		}},
		{rule: "7.4", name: "a body above the limit is too large, for ever", body: strings.Repeat("x", 2<<20), request: chunked, script: func(s *script) {
			s.call("drain", abi.HandleRequestBody).fails(s, abi.TooLarge)
			s.call("read", abi.HandleRequestBody, s.buffer(8), 0).fails(s, abi.TooLarge)
		}},
		{rule: "7.4", name: "closing the body discards the rest", body: strings.Repeat("x", 100_000), script: func(s *script) {
			s.call("close", abi.HandleRequestBody).gives(s, 0)
		}},
		{rule: "7.4", name: "trailers come after the end of the body", body: "abc", request: func(r *http.Request) {
			chunked(r)
			r.Trailer = http.Header{"X-Sum": {"7", "8"}}
		}, script: func(s *script) {
			out := s.buffer(256)
			s.call("trailers", abi.HandleRequestBody, out).fails(s, abi.Conflict)
			s.call("drain", abi.HandleRequestBody).gives(s, 3)
			s.call("trailers", abi.HandleRequestBody, beyond(256)).fails(s, abi.Invalid)
			n := s.call("trailers", abi.HandleRequestBody, out).atLeast(s, 1)
			s.fields(out, n, header("X-Sum", "7"), header("X-Sum", "8"))
		}},
		{rule: "7.4", name: "without trailers their record is empty", script: func(s *script) {
			s.call("drain", abi.HandleRequestBody).gives(s, 0)
			s.call("trailers", abi.HandleRequestBody, s.buffer(8)).gives(s, 0)
		}},
	}
}

// hasOnce expects exactly one field of each tag, and not an empty one.
func (s *script) hasOnce(sp span, length *step, tags ...abi.Tag) {
	s.checks = append(s.checks, func(m image) error {
		counts := make(map[abi.Tag]int)
		for record := m.bytes(span{sp.p, uint32(max(0, m.results[length.number]))}); len(record) > 0; {
			f, rest, err := abi.Next(record)
			if err != nil {
				return err
			}
			if record = rest; len(f.Value) > 0 {
				counts[f.Tag]++
			}
		}
		for _, tag := range tags {
			if counts[tag] != 1 {
				return fmt.Errorf("%d fields with tag %d", counts[tag], tag)
			}
		}
		return nil
	})
}

// same expects two spans to hold the same.
func (s *script) same(a, b span) {
	s.checks = append(s.checks, func(m image) error {
		if !bytes.Equal(m.bytes(a), m.bytes(b)) {
			return errors.New("two calls wrote different things")
		}
		return nil
	})
}
