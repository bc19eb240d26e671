package conformance

import (
	"strings"

	"github.com/edgehost/edgehost/guests/abi"
)

// noSuchHandle is above every handle that a script gets.
const noSuchHandle = 1 << 20

func callTo(method, target string, more ...[]byte) []byte {
	b := abi.AppendText(nil, abi.FieldMethod, method)
	b = abi.AppendText(b, abi.FieldTarget, target)
	for _, field := range more {
		b = append(b, field...)
	}
	return b
}

func header(name, value string) []byte { return abi.AppendPair(nil, abi.FieldHeader, name, value) }

func textField(tag abi.Tag, value string) []byte { return abi.AppendText(nil, tag, value) }

func numberField(tag abi.Tag, n uint64) []byte { return abi.AppendNumber(nil, tag, n) }

// beyond is n bytes that begin outside of the memory.
func beyond(n int) span { return span{outside, uint32(n)} }

func boundaryCases() []testCase {
	return []testCase{
		{rule: "3.5", name: "ranges outside of the memory are invalid", body: "rest", script: rangesOutside},
		{rule: "3.5", name: "ranges outside of the memory are invalid for calls and coordination", script: objectRangesOutside},
		{rule: "3.5", name: "a range that crosses the end of the memory is invalid", body: "rest", script: func(s *script) {
			end := span{interpreterPages<<16 - 4, 8}
			wraps := span{outside, 64}
			for _, sp := range []span{end, wraps} {
				s.call("log", 0, sp).fails(s, abi.Invalid)
				s.call("request_head", sp.p, 1<<18).fails(s, abi.Invalid)
				s.call("read", 1, sp, 0).fails(s, abi.Invalid)
			}
			rest := s.buffer(4)
			s.call("read all", 1, rest).gives(s, 4)
			s.holds(rest, "rest")
		}},
		{rule: "3.4", name: "a misaligned out pointer is invalid", script: func(s *script) {
			room := span(s.cell(64))
			s.call("status", int(room.p+4)).fails(s, abi.Invalid)
			lease := s.call("lease_acquire", s.text("doc/aligned"), 0, 0, 0, 0).atLeast(s, 4)
			s.call("lease_result", lease, int(room.p+1), 0).fails(s, abi.Invalid)
			object, key := s.text("doc/aligned"), s.text("k")
			s.call("state_get", object, key, 0, 0, 0, int(room.p+2)).fails(s, abi.Invalid)
			s.call("state_put", object, key, 0, 0, s.text("v"), int(room.p+4)).fails(s, abi.Invalid)
			s.untouched(room)
		}},
		{rule: "3.3", name: "a buffer that is too small is left alone and the length told", script: func(s *script) {
			small, name := s.buffer(1), s.text("GREETING")
			s.call("config", abi.ConfigEnv, name, small).gives(s, 2)
			s.untouched(small)
			s.call("config", abi.ConfigEnv, name, outside, 0).gives(s, 2)
			short := s.buffer(16)
			s.call("request_head", short).atLeast(s, 17)
			s.untouched(short)
			s.call("error", short).gives(s, abi.ErrorSize)
			s.untouched(short)
			head := s.buffer(2048)
			n := s.call("request_head", head).atLeast(s, 17)
			s.fields(head, n, textField(abi.FieldMethod, "POST"))
		}},
	}
}

func argumentCases() []testCase {
	return []testCase{
		{rule: "3.5", name: "the unused part of a buffer is not looked at", script: func(s *script) {
			near := span{interpreterPages<<16 - 2, 1 << 20}
			s.call("config", abi.ConfigEnv, s.text("GREETING"), near).gives(s, 2)
		}},
		{rule: "3.2", name: "a range of length zero may have any pointer", script: func(s *script) {
			s.call("log", 0, beyond(0)).gives(s, 0)
			s.call("response_head", 200, beyond(0), 0).gives(s, 0)
			s.call("write", abi.HandleResponseBody, beyond(0), 0).gives(s, 0)
			s.answer = resultsInDump
		}},
		{rule: "3.7", name: "undefined numbers are unsupported", body: "rest", script: undefinedNumbers},
		{rule: "3.11", name: "names have 1 to 256 bytes", script: func(s *script) {
			long := s.text(strings.Repeat("n", abi.MaxName+1))
			for _, name := range []span{{}, long} {
				s.call("config", abi.ConfigEnv, name, 0, 0).fails(s, abi.Invalid)
				s.call("admit", name, 0).fails(s, abi.Invalid)
				s.call("lease_acquire", name, 0, 0, 0, 0).fails(s, abi.Invalid)
				s.call("state_get", s.text("doc/names"), name, 0, 0, 0, s.cell(8)).fails(s, abi.Invalid)
				s.call("state_put", name, s.text("k"), 0, 0, 0, 0, s.cell(8)).fails(s, abi.Invalid)
			}
			s.call("fetch", long, s.record(callTo("GET", "/echo")), 0, 0).fails(s, abi.Invalid)
			s.call("lease_acquire", s.text("doc/names"), long, 0, 0).fails(s, abi.Invalid)
			s.call("config", abi.ConfigEnv, s.text(strings.Repeat("n", abi.MaxName)), 0, 0).fails(s, abi.NotFound)
		}},
	}
}

func rangesOutside(s *script) {
	s.call("error", beyond(64)).fails(s, abi.Invalid)
	s.call("wait", beyond(abi.WaitSize), 0).fails(s, abi.Invalid)
	s.call("status", outside).fails(s, abi.Invalid)
	s.call("log", 0, beyond(4)).fails(s, abi.Invalid)
	s.call("config", abi.ConfigEnv, beyond(4), s.buffer(8)).fails(s, abi.Invalid)
	s.call("config", abi.ConfigEnv, s.text("GREETING"), beyond(64)).fails(s, abi.Invalid)
	s.call("request_head", beyond(1<<16)).fails(s, abi.Invalid)
	s.call("response_fail", abi.Internal, 0, beyond(4)).fails(s, abi.Invalid)
	s.call("response_head", 200, beyond(8), 0).fails(s, abi.Invalid)
	s.call("read", abi.HandleRequestBody, beyond(4), 0).fails(s, abi.Invalid)
	rest := s.buffer(4)
	s.call("read all", abi.HandleRequestBody, rest).gives(s, 4) // nothing was consumed before
	s.holds(rest, "rest")
	s.call("response_head", 200, 0, 0, 0).gives(s, 0)
	s.call("write", abi.HandleResponseBody, beyond(4), 0).fails(s, abi.Invalid)
	s.call("finish", abi.HandleResponseBody, beyond(8)).fails(s, abi.Invalid)
	s.answer = resultsInDump
}

func objectRangesOutside(s *script) {
	up, object, key := s.text("up"), s.text("doc/outside"), s.text("k")
	echo := s.record(callTo("GET", "/echo"))
	s.call("fetch", beyond(2), echo, 0, 0).fails(s, abi.Invalid)
	s.call("fetch", up, beyond(16), 0, 0).fails(s, abi.Invalid)
	h := s.call("fetch", up, echo, 0, 0).atLeast(s, 4)
	s.call("fetch_head", h, beyond(1<<16), 0).fails(s, abi.Invalid)
	s.call("fetch_head", h, 0, 0, 0).atLeast(s, 1)
	s.call("admit", beyond(2), 0).fails(s, abi.Invalid)
	s.call("lease_acquire", beyond(4), 0, 0, 0, 0).fails(s, abi.Invalid)
	s.call("lease_acquire", object, beyond(4), 0, 0).fails(s, abi.Invalid)
	s.call("lease_acquire", object, 0, 0, beyond(14)).fails(s, abi.Invalid)
	lease := s.call("lease_acquire", object, 0, 0, 0, 0).atLeast(s, 4)
	s.call("lease_result", lease, outside, 0).fails(s, abi.Invalid)
	s.call("lease_result", lease, s.cell(abi.LeaseSize), 0).gives(s, 0)
	s.call("state_put", object, key, 0, 0, beyond(4), s.cell(8)).fails(s, abi.Invalid)
	s.call("state_put", object, beyond(4), 0, 0, 0, 0, s.cell(8)).fails(s, abi.Invalid)
	s.call("state_put", object, key, 0, 0, key, outside).fails(s, abi.Invalid)
	s.call("state_put", object, key, 0, 0, key, s.cell(8)).gives(s, 0) // nothing was written before
	s.call("state_get", object, key, 0, beyond(64), s.cell(8)).fails(s, abi.Invalid)
	s.call("state_get", object, key, 0, s.buffer(8), outside).fails(s, abi.Invalid)
}

func undefinedNumbers(s *script) {
	const undefined = 2 // a flag
	up, echo, object := s.text("up"), s.record(callTo("GET", "/echo")), s.text("doc/undefined")
	s.call("config", 2, s.text("GREETING"), s.buffer(8)).fails(s, abi.Unsupported)
	s.call("read", abi.HandleRequestBody, s.buffer(4), undefined).fails(s, abi.Unsupported)
	s.call("response_head", 200, 0, 0, undefined).fails(s, abi.Unsupported)
	s.call("fetch", up, echo, abi.BodyNone, undefined).fails(s, abi.Unsupported)
	s.call("fetch", up, echo, 3, 0).fails(s, abi.Unsupported)
	h := s.call("fetch", up, echo, abi.BodyNone, 0).atLeast(s, 4)
	s.call("fetch_head", h, s.buffer(512), undefined).fails(s, abi.Unsupported)
	s.call("admit", up, undefined).fails(s, abi.Unsupported)
	s.call("admit", up, abi.FlagNoBlock).fails(s, abi.Unsupported) // 7.5
	a := s.call("admit", up, 0).atLeast(s, 4)
	s.call("report", a, 4).fails(s, abi.Unsupported)
	s.call("report", a, abi.OutcomeSuccess).gives(s, 0)
	lease := s.call("lease_acquire", object, 0, 0, 0, 0).atLeast(s, 4)
	s.call("lease_result", lease, s.cell(abi.LeaseSize), undefined).fails(s, abi.Unsupported)
	s.call("lease_release", lease, undefined).fails(s, abi.Unsupported)
	s.call("lease_release", lease, 0).gives(s, 0)
	interest := s.text("\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00")
	s.call("wait", interest, 0).fails(s, abi.Unsupported)
	s.call("response_head", 200, 0, 0, 0).gives(s, 0)
	s.call("write", abi.HandleResponseBody, s.text("x"), undefined).fails(s, abi.Unsupported)
	s.answer = resultsInDump
}
