package conformance

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// fetch adds a GET of a dependency that must be taken.
func (s *script) fetch(dependency, target string, more ...[]byte) *step {
	return s.call("fetch", s.text(dependency), s.record(callTo("GET", target, more...)), abi.BodyNone, 0).atLeast(s, 4)
}

// answered adds the end of a call: its head must have these fields.
func (s *script) answered(h *step, want ...[]byte) {
	head := s.buffer(2048)
	n := s.call("fetch_head", h, head, 0).atLeast(s, 1)
	s.fields(head, n, want...)
}

// verdict expects the same code of everything that tells how a call ended.
func (s *script) verdict(h *step, want abi.Code) {
	s.call("fetch_head", h, s.buffer(512), 0).fails(s, want)
	s.call("fetch_head", h, 0, 0, abi.FlagNoBlock).fails(s, want)
	s.call("read", h, s.buffer(8), 0).fails(s, want)
	s.call("close", h).gives(s, 0)
}

func callBodyCases() []testCase {
	ok := numberField(abi.FieldStatus, 200)
	return []testCase{
		{rule: "7.5", name: "a call with an inline body", script: func(s *script) {
			record := callTo("PUT", "/echo?q=1", textField(abi.FieldBody, "hello"), header("Content-Type", "text/x"))
			h := s.call("fetch", s.text("up"), s.record(record), abi.BodyInline, 0).atLeast(s, 4)
			s.answered(h, ok, textField(abi.FieldProtocol, "HTTP/1.1"), numberField(abi.FieldContentLength, 5),
				header("X-Seen", "PUT /base/echo?q=1 5"), header("Set-Cookie", "a=1"), header("Set-Cookie", "b=2"))
			s.call("trailers", h, s.buffer(8)).fails(s, abi.Conflict)
			out := s.buffer(8)
			s.call("read all", h, out).gives(s, 5)
			s.holds(out, "hello\xaa")
			s.call("read", h, s.buffer(1), 0).gives(s, 0)
			s.call("trailers", h, s.buffer(8)).gives(s, 0)
			s.answered(h, ok) // again
		}},
		{rule: "7.5", name: "read waits for the head by itself", script: func(s *script) {
			record := callTo("POST", "/echo", textField(abi.FieldBody, "hello"))
			h := s.call("fetch", s.text("up"), s.record(record), abi.BodyInline, 0).atLeast(s, 4)
			out := s.buffer(8)
			s.call("read all", h, out).gives(s, 5)
			s.holds(out, "hello")
		}},
		{rule: "7.5", name: "an empty inline body", script: func(s *script) {
			record := callTo("POST", "/echo", textField(abi.FieldBody, ""))
			h := s.call("fetch", s.text("up"), s.record(record), abi.BodyInline, 0).atLeast(s, 4)
			s.answered(h, ok, header("X-Seen", "POST /base/echo 0"))
		}},
		{rule: "7.5", name: "a call with a streamed body", script: func(s *script) {
			h := s.call("fetch", s.text("up"), s.record(callTo("POST", "/echo")), abi.BodyStream, 0).atLeast(s, 4)
			s.call("write all", h, s.text("one ")).gives(s, 4)
			s.call("flush", h).gives(s, 0)
			s.call("write all", h, s.text("two")).gives(s, 3)
			s.call("fetch_head", h, s.buffer(64), abi.FlagNoBlock).fails(s, abi.Again)
			s.call("finish", h, s.record(header("X-Sum", "7"))).fails(s, abi.Unsupported)
			s.call("finish", h, 0, 0).gives(s, 0)
			s.call("finish", h, 0, 0).fails(s, abi.Conflict)
			s.call("write", h, s.text("x"), 0).fails(s, abi.Conflict, abi.DependencyFailed)
			s.answered(h, ok)
			out := s.buffer(16)
			s.call("read all", h, out).gives(s, 7)
			s.holds(out, "one two\xaa")
		}},
		{rule: "7.5", name: "a large streamed body", script: func(s *script) {
			h := s.call("fetch", s.text("up"), s.record(callTo("POST", "/results/large")), abi.BodyStream, 0).atLeast(s, 4)
			page := s.buffer(1 << 16)
			for range 40 {
				s.call("write all", h, page).gives(s, 1<<16)
			}
			s.call("finish", h, 0, 0).gives(s, 0)
			s.answered(h, ok)
		}},
	}
}

func callAnswerCases() []testCase {
	ok := numberField(abi.FieldStatus, 200)
	return []testCase{
		{rule: "7.4", name: "the trailers of an answer", script: func(s *script) {
			h, trailers := s.fetch("up", "/trailers"), s.buffer(64)
			s.call("trailers", h, trailers).fails(s, abi.Conflict)
			s.call("drain", h).gives(s, 4)
			n := s.call("trailers", h, trailers).atLeast(s, 1)
			s.fields(trailers, n, header("X-Sum", "7"))
		}},
		{rule: "7.5", name: "calls run at the same time", script: func(s *script) {
			a, b := s.fetch("up", "/echo?a"), s.fetch("up", "/echo?b")
			s.answered(b, header("X-Seen", "GET /base/echo?b 0"))
			s.answered(a, header("X-Seen", "GET /base/echo?a 0"))
		}},
		{rule: "7.5", name: "any status is an answer", script: func(s *script) {
			for _, status := range []int{204, 304, 404, 500, 503} {
				h := s.fetch("up", fmt.Sprintf("/status/%d", status))
				s.answered(h, numberField(abi.FieldStatus, uint64(status)))
				s.call("read", h, s.buffer(8), 0).gives(s, 0)
			}
		}},
		{rule: "7.5", name: "an incomplete or impossible call is invalid", script: func(s *script) {
			for _, record := range [][]byte{
				textField(abi.FieldMethod, "GET"),
				textField(abi.FieldTarget, "/echo"),
				callTo("G T", "/echo"), callTo("", "/echo"),
				callTo("GET", "echo"), callTo("GET", ""), callTo("GET", "http://localhost/"),
				callTo("GET", "/echo", header("X A", "1")), callTo("GET", "/echo", header("X-A", "a\nb")),
			} {
				s.call("fetch", s.text("up"), s.record(record), abi.BodyNone, 0).fails(s, abi.Invalid)
			}
			for _, target := range []string{"/echo", "https://", "allowed.invalid", "https://allowed.invalid/a b"} {
				s.call("fetch", 0, 0, s.record(callTo("GET", target)), abi.BodyNone, 0).fails(s, abi.Invalid)
			}
			s.call("fetch", s.text("up"), s.record(callTo("POST", "/echo")), abi.BodyInline, 0).fails(s, abi.Invalid)
			misplaced := callTo("POST", "/echo", textField(abi.FieldBody, "x"))
			s.call("fetch", s.text("up"), s.record(misplaced), abi.BodyNone, 0).fails(s, abi.Invalid)
		}},
		{rule: "6.3", name: "the fields of a call", script: func(s *script) {
			h := s.fetch("up", "/echo", header("X-Sent", "2"), header("X-Sent", "1"), header("Accept-Encoding", "br"),
				header("Connection", "X-Drop"), header("X-Drop", "1"), header("Te", "trailers"), header("Upgrade", "h2c"),
				header("Host", "elsewhere.example"), header("Content-Length", "99"), header("Edgehost-Fence", "1"),
				header("Proxy-Authorization", "Basic"))
			s.answered(h, ok, header("X-Seen", "GET /base/echo 0"), header("X-Seen-Values", "2|1"), header("X-Seen-Fence", ""),
				header("X-Seen-Names", "accept-encoding,user-agent,x-sent"))
		}},
	}
}

func callVerdictCases(upstreamURL string) []testCase {
	ok := numberField(abi.FieldStatus, 200)
	elsewhere := strings.Replace(upstreamURL, "127.0.0.1", "localhost", 1)
	return []testCase{
		{rule: "7.5", name: "what the manifest does not give is denied", script: func(s *script) {
			echo := s.record(callTo("GET", "/echo"))
			s.call("fetch", s.text("nothing"), echo, 0, 0).fails(s, abi.Denied)
			s.call("admit", s.text("nothing"), 0).fails(s, abi.Denied)
			s.call("fetch", 0, 0, s.record(callTo("GET", upstreamURL+"/base/echo")), 0, 0).fails(s, abi.Denied)
			for _, target := range []string{"http://192.0.2.1/", "ftp://allowed.invalid/", "https://u:p@allowed.invalid/", "https://allowed.invalid:8443/"} {
				s.call("fetch", 0, 0, s.record(callTo("GET", target)), 0, 0).fails(s, abi.Denied)
			}
		}},
		{rule: "7.5", name: "a plain call goes to an allowed host, which may not exist", script: func(s *script) {
			record := callTo("GET", "https://allowed.invalid/", numberField(abi.FieldTimeout, uint64(time.Second)))
			h := s.call("fetch", 0, 0, s.record(record), 0, 0).atLeast(s, 4)
			s.call("fetch_head", h, 0, 0, 0).fails(s, abi.DependencyFailed, abi.DeadlineExceeded) // however its resolver says so
		}},
		{rule: "7.5", name: "redirects stay within the dependency", script: func(s *script) {
			s.answered(s.fetch("up", "/redirect?to=/base/echo"), ok, header("X-Seen", "GET /base/echo 0"))
			s.verdict(s.fetch("up", "/redirect?to="+elsewhere+"/base/echo"), abi.Denied)
			s.verdict(s.fetch("up", "/redirect?to=http://169.254.169.254/latest"), abi.Denied)
		}},
		{rule: "7.5", name: "a dependency that cannot be reached", script: func(s *script) {
			s.verdict(s.fetch("gone", "/"), abi.DependencyFailed)
		}},
		{rule: "7.5", name: "an answer that breaks off", script: func(s *script) {
			h := s.fetch("up", "/cut")
			s.answered(h, ok)
			s.call("read all", h, s.buffer(100)).fails(s, abi.DependencyFailed)
			s.call("read", h, s.buffer(100), 0).fails(s, abi.DependencyFailed)
		}},
		{rule: "7.5", name: "a call waits no longer than its timeout, or the manifest's", script: func(s *script) {
			mine := s.fetch("up", "/hang", numberField(abi.FieldTimeout, uint64(20*time.Millisecond)))
			its := s.fetch("slow", "/hang", numberField(abi.FieldTimeout, uint64(time.Hour)))
			s.verdict(mine, abi.DeadlineExceeded)
			s.verdict(its, abi.DeadlineExceeded)
		}},
		{rule: "3.8", name: "calls that would wait answer again", script: func(s *script) {
			hangs, drips := s.fetch("up", "/hang"), s.fetch("up", "/drip")
			s.call("fetch_head", hangs, s.buffer(64), abi.FlagNoBlock).fails(s, abi.Again)
			s.call("read", hangs, s.buffer(64), abi.FlagNoBlock).fails(s, abi.Again)
			out := s.buffer(8)
			s.call("read all", drips, span{out.p, 4}).gives(s, 4)
			s.holds(out, "drop\xaa")
			s.call("read", drips, out, abi.FlagNoBlock).fails(s, abi.Again)
		}},
		{rule: "7.5", name: "a call under a lease carries its fence", script: underLease},
	}
}

func underLease(s *script) {
	object, grant := s.text("doc/fenced-call"), s.cell(abi.LeaseSize)
	lease := s.call("lease_acquire", object, 0, 0, 0, 0).atLeast(s, 4)
	s.call("lease_result", lease, grant, 0).gives(s, 0)
	record := s.record(callTo("GET", "/echo", numberField(abi.FieldLease, 0)))
	s.call("store", int(record.p+record.n-8), lease)
	h := s.call("fetch", s.text("up"), record, 0, 0).atLeast(s, 4)
	head := s.buffer(2048)
	s.call("fetch_head", h, head, 0).atLeast(s, 1)
	s.checks = append(s.checks, func(m image) error {
		fence := fmt.Sprintf("X-Seen-Fence%d", binary.LittleEndian.Uint64(m.bytes(span(grant))))
		if !strings.Contains(string(m.bytes(head)), fence) {
			return fmt.Errorf("the dependency did not see %s: %q", fence, m.bytes(head))
		}
		return nil
	})
	for _, other := range []int{noSuchHandle, 0} {
		bad := s.record(callTo("GET", "/echo", numberField(abi.FieldLease, uint64(other))))
		s.call("fetch", s.text("up"), bad, 0, 0).fails(s, abi.NotFound)
	}
	wrong := s.record(callTo("GET", "/echo", numberField(abi.FieldLease, abi.HandleRequestBody)))
	s.call("fetch", s.text("up"), wrong, 0, 0).fails(s, abi.Invalid)
	s.call("lease_release", lease, 0).gives(s, 0)
	s.call("fetch", s.text("up"), record, 0, 0).fails(s, abi.NotFound)
}

func breakerCases() []testCase {
	retry := func(code abi.Code) func(abi.Failure) bool {
		return func(f abi.Failure) bool { return f.Code == code && f.RetryAfter > 0 }
	}
	return []testCase{
		{rule: "7.5", name: "an admission is reported once", script: func(s *script) {
			for outcome := abi.OutcomeSuccess; outcome <= abi.OutcomeExcluded; outcome++ {
				a := s.call("admit", s.text("up"), 0).atLeast(s, 4)
				s.call("report", a, outcome).gives(s, 0)
				s.call("report", a, outcome).fails(s, abi.NotFound)
			}
		}},
		{rule: "7.5", name: "a breaker opens, and refuses admissions and calls with a retry time", script: func(s *script) {
			trips, told := s.text("trips"), s.buffer(512)
			a := s.call("admit", trips, 0).atLeast(s, 4)
			s.call("report", a, abi.OutcomeFailure).gives(s, 0)
			s.call("admit", trips, 0).fails(s, abi.BreakerOpen)
			n := s.call("error", told).atLeast(s, abi.ErrorSize)
			s.failure(told, n, retry(abi.BreakerOpen), "breaker_open with a retry time")
			h := s.fetch("trips", "/echo")
			s.call("fetch_head", h, 0, 0, 0).fails(s, abi.BreakerOpen)
			later := s.buffer(512)
			n = s.call("error", later).atLeast(s, abi.ErrorSize)
			s.failure(later, n, retry(abi.BreakerOpen), "breaker_open with a retry time")
			s.verdict(h, abi.BreakerOpen)
		}},
		{rule: "7.5", name: "a failed call opens the breaker", script: func(s *script) {
			h := s.fetch("trips-on-fetch", "/status/500")
			s.answered(h, numberField(abi.FieldStatus, 500))
			s.call("drain", h).gives(s, 0)
			s.call("wait", 0, 0, int(500*time.Millisecond)) // the opening is stored meanwhile
			s.verdict(s.fetch("trips-on-fetch", "/echo"), abi.BreakerOpen)
		}},
		{rule: "7.5", name: "one probe after the cooldown, deferral for others, then closed", script: func(s *script) {
			heals, told := s.text("heals"), s.buffer(512)
			a := s.call("admit", heals, 0).atLeast(s, 4)
			s.call("report", a, abi.OutcomeFailure).gives(s, 0)
			s.call("wait", 0, 0, int(100*time.Millisecond)).gives(s, 0)
			probe := s.call("admit", heals, 0).atLeast(s, 4)
			s.call("admit", heals, 0).fails(s, abi.Deferred)
			n := s.call("error", told).atLeast(s, abi.ErrorSize)
			s.failure(told, n, retry(abi.Deferred), "deferred with a retry time")
			s.verdict(s.fetch("heals", "/echo"), abi.Deferred)
			s.call("report", probe, abi.OutcomeSuccess).gives(s, 0)
			s.answered(s.fetch("heals", "/echo"), numberField(abi.FieldStatus, 200))
		}},
	}
}
