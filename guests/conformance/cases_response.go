package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/edgehost/edgehost/guests/abi"
)

// both expects several things of a response.
func both(checks ...func(response) error) func(response) error {
	return func(r response) error {
		for _, check := range checks {
			if err := check(r); err != nil {
				return err
			}
		}
		return nil
	}
}

func hasStatus(want int) func(response) error {
	return func(r response) error {
		if r.StatusCode != want {
			return fmt.Errorf("status %d, want %d", r.StatusCode, want)
		}
		return nil
	}
}

func hasBody(want string) func(response) error {
	return func(r response) error {
		if r.body != want {
			return fmt.Errorf("body %q, want %q", shortened(r.body), shortened(want))
		}
		return r.broken
	}
}

func hasNo(names ...string) func(response) error {
	return func(r response) error {
		for _, name := range names {
			if values := r.Header.Values(name); values != nil {
				return fmt.Errorf("%s: %q", name, values)
			}
		}
		return nil
	}
}

// head adds a final head with these fields, which must be taken.
func (s *script) head(status int, fields ...[]byte) {
	s.call("response_head", status, s.record(slices.Concat(fields...)), 0).gives(s, 0)
}

// write adds a write of all of these bytes, which must be taken.
func (s *script) write(b string) {
	s.call("write all", abi.HandleResponseBody, s.text(b)).gives(s, len(b))
}

func method(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }

func responseCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "7.4", name: "status, fields and body reach the client", script: func(s *script) {
			s.answer = noResults
			s.head(201, header("X-A", "1"), header("Set-Cookie", "a=1; Path=/"), header("set-cookie", "b=2"), header("X-A", "2"))
			s.write("some")
			s.write(" text")
		}, check: both(hasStatus(201), hasHeader("X-A", "1", "2"), hasHeader("Set-Cookie", "a=1; Path=/", "b=2"), hasBody("some text"))},
		{rule: "7.4", name: "an answer may be empty", script: func(s *script) {
			s.answer = noResults
			s.head(404)
		}, check: both(hasStatus(404), hasBody(""), hasHeader("Content-Length", "0"))},
		{rule: "7.4", name: "a status outside of the range is invalid", script: func(s *script) {
			for _, status := range []int{0, -1, 99, 101, 600, 1000} {
				s.call("response_head", status, 0, 0, 0).fails(s, abi.Invalid)
			}
			s.head(599)
			s.answer = resultsInDump
		}, check: hasStatus(599)},
		{rule: "7.4", name: "informational heads go before the final one, and not after", script: func(s *script) {
			s.call("response_head", 103, s.record(header("Link", "</a>")), 0).gives(s, 0)
			s.call("response_head", 102, 0, 0, 0).gives(s, 0)
			s.head(200)
			s.call("response_head", 103, 0, 0, 0).fails(s, abi.Conflict)
			s.answer = resultsInDump
		}, check: both(status200, hasNo("Link"), func(r response) error {
			if !slices.Equal(r.informational, []int{103, 102}) {
				return fmt.Errorf("informational answers %d", r.informational)
			}
			return nil
		})},
		{rule: "7.4", name: "a body needs a head", script: func(s *script) {
			s.call("write", body, s.text("x"), 0).fails(s, abi.Conflict)
			s.call("flush", body).fails(s, abi.Conflict)
			s.call("finish", body, 0, 0).fails(s, abi.Conflict)
		}},
	}
}

func responseFieldCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "7.4", name: "nothing is written after finish", script: func(s *script) {
			s.answer = resultsUpstream
			s.head(200)
			s.write("all")
			s.call("finish", body, 0, 0).gives(s, 0)
			s.call("write", body, s.text("more"), 0).fails(s, abi.Conflict)
			s.call("finish", body, 0, 0).fails(s, abi.Conflict)
			s.call("flush", body).gives(s, 0)
		}, check: both(status200, hasBody("all"))},
		{rule: "6.3", name: "bad names and values are invalid, and a better head may follow", script: func(s *script) {
			for _, bad := range []string{"", "a b", "a:", "a\n", "\x00", "é", "(a)"} {
				s.call("response_head", 200, s.record(header(bad, "v")), 0).fails(s, abi.Invalid)
			}
			for _, bad := range []string{"a\r\nb: c", "a\n", "\x00", "a\x7f", "\x1b"} {
				s.call("response_head", 200, s.record(slices.Concat(header("X-Good", "v"), header("X-Bad", bad))), 0).fails(s, abi.Invalid)
			}
			s.head(200, header("X-Tab", "a\tb"), header("!#$%&'*+.^_`|~0aZ-", "é"))
			s.answer = resultsInDump
		}, check: both(status200, hasNo("X-Good", "X-Bad"), hasHeader("X-Tab", "a\tb"), hasHeader("!#$%&'*+.^_`|~0aZ-", "é"))},
		{rule: "6.3", name: "fields of one connection do not reach the client", script: func(s *script) {
			s.head(200, header("Connection", "X-Drop"), header("X-Drop", "1"), header("Keep-Alive", "x"), header("Transfer-Encoding", "gzip"),
				header("Trailer", "X-T"), header("Upgrade", "h2c"), header("Proxy-Authenticate", "Basic"), header("Te", "x"), header("X-Kept", "1"))
			s.answer = resultsInDump
		}, check: both(status200, hasHeader("X-Kept", "1"),
			hasNo("Connection", "X-Drop", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade", "Proxy-Authenticate", "Te"))},
		{rule: "6.3", name: "the request's id is the host's", script: func(s *script) {
			s.head(200, header("X-Request-Id", "mine"))
			s.answer = resultsInDump
		}, check: func(r response) error {
			if ids := r.Header.Values("X-Request-Id"); len(ids) != 1 || ids[0] == "mine" || ids[0] == "" {
				return fmt.Errorf("X-Request-Id %q", ids)
			}
			return r.broken
		}},
		{rule: "6.3", name: "a Content-Length is a number and binds the body", script: func(s *script) {
			s.answer = resultsUpstream
			for _, bad := range []string{"abc", "-1", "", "1.5", "99999999999999999999"} {
				s.call("response_head", 200, s.record(header("Content-Length", bad)), 0).fails(s, abi.Invalid)
			}
			s.head(200, header("Content-Length", "5"))
			s.call("write", body, s.text("sixsix"), 0).fails(s, abi.Invalid)
			s.write("fo")
			s.call("finish", body, 0, 0).fails(s, abi.Invalid)
			s.write("ur!")
			s.call("finish", body, 0, 0).gives(s, 0)
		}, check: both(status200, hasBody("four!"), hasHeader("Content-Length", "5"))},
	}
}

func responseBodyCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "7.4", name: "the answer to HEAD has a head only", request: method(http.MethodHead), script: func(s *script) {
			s.answer = resultsUpstream
			s.head(200, header("X-A", "1"), header("Content-Length", "7"))
			s.write("dropped")
		}, check: both(status200, hasBody(""), hasHeader("X-A", "1"), hasHeader("Content-Length", "7"))},
		{rule: "7.4", name: "204 has no body", script: func(s *script) {
			s.answer = resultsUpstream
			s.head(204)
			s.write("dropped")
		}, check: both(hasStatus(204), hasBody(""))},
		{rule: "7.4", name: "304 has no body", script: func(s *script) {
			s.answer = resultsUpstream
			s.head(304, header("Etag", `"a"`))
			s.write("dropped")
		}, check: both(hasStatus(304), hasBody(""), hasHeader("Etag", `"a"`))},
		{rule: "7.4", name: "trailers follow the body", script: func(s *script) {
			s.answer = resultsUpstream
			s.head(200)
			s.write("body")
			s.call("finish", body, s.record([]byte("rubbish"))).fails(s, abi.Invalid)
			s.call("finish", body, s.record(textField(abi.FieldMethod, "GET"))).fails(s, abi.Unsupported)
			s.call("finish", body, s.record(slices.Concat(
				header("X-Sum", "7"), header("X-Sum", "8"), header("Content-Length", "4"), header("Set-Cookie", "a=1")))).gives(s, 0)
		}, check: both(status200, hasBody("body"), func(r response) error {
			if got := r.Trailer.Values("X-Sum"); !slices.Equal(got, []string{"7", "8"}) || len(r.Trailer) != 1 {
				return fmt.Errorf("trailers %v", r.Trailer)
			}
			return nil
		})},
	}
}

func streamCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "7.4", name: "large bodies stream", script: func(s *script) {
			s.answer = noResults
			s.head(200)
			page := s.text(strings.Repeat("0123456789abcdef", 4096))
			for range 48 {
				s.call("write all", body, page)
			}
		}, check: both(status200, func(r response) error {
			if r.body != strings.Repeat("0123456789abcdef", 48*4096) {
				return fmt.Errorf("a body of %d bytes", len(r.body))
			}
			return nil
		})},
		{rule: "2.2", name: "flush sends head and body while the guest goes on", hold: true, script: func(s *script) {
			// The client sends the rest when it has the head.
			s.head(200)
			s.call("flush", body).gives(s, 0)
			s.call("drain", abi.HandleRequestBody).gives(s, 3)
			s.answer = resultsInDump
		}},
		{rule: "2.2", name: "flush after finish sends the whole answer", hold: true, script: func(s *script) {
			s.answer = resultsUpstream
			s.head(200)
			s.write("whole")
			s.call("finish", body, 0, 0).gives(s, 0)
			s.call("flush", body).gives(s, 0)
			s.call("drain", abi.HandleRequestBody).gives(s, 3)
		}, check: both(status200, hasBody("whole"))},
		{rule: "7.4", name: "the answer's body is not to be read", script: func(s *script) {
			s.call("fetch_head", body, s.buffer(8), 0).fails(s, abi.Invalid)
		}},
	}
}

// failed expects that the guest's failure was answered, and nothing of its own.
var failed = both(problem(http.StatusBadGateway, "function_failed"), hasNo("X-Guest"))

// begin gives a part of an answer.
func (s *script) begin() {
	s.answer = noResults
	s.head(200, header("X-Guest", "1"))
	s.write("a part")
}

// beginFlushed gives a part of an answer that is committed.
func (s *script) beginFlushed() {
	s.begin()
	s.call("flush", abi.HandleResponseBody)
}

func failureCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "2.3", name: "a trap before the answer is committed", script: func(s *script) { s.begin(); s.call("trap") }, check: failed},
		{rule: "2.3", name: "a trap after a flush", script: func(s *script) { s.beginFlushed(); s.call("trap") }, check: brokenOff},
		{rule: "2.3", name: "a trap after more than the host holds back", script: func(s *script) {
			s.begin()
			page := s.text(strings.Repeat("x", 1<<16))
			for range 64 {
				s.call("write all", body, page)
			}
			s.call("trap")
		}, check: brokenOff},
		{rule: "2.1", name: "a negative result after a whole answer", script: func(s *script) { s.begin(); s.call("end", -5) }, check: failed},
		{rule: "2.1", name: "a negative result after a flush", script: func(s *script) { s.beginFlushed(); s.call("end", -5) }, check: brokenOff},
		{rule: "2.1", name: "an undefined result", script: func(s *script) { s.begin(); s.call("end", 7) }, check: failed},
		{rule: "2.1", name: "result 1 is an answer as good as any", script: func(s *script) {
			s.begin()
			s.call("end", abi.HandleRetire)
		}, check: both(status200, hasBody("a part"))},
		{rule: "2.3", name: "no answer", script: func(s *script) { s.answer = noResults }, check: failed},
		{rule: "2.3", name: "a second final head", script: func(s *script) {
			s.begin()
			s.answer = resultsUpstream
			s.call("response_head", 201, 0, 0, 0).fails(s, abi.Conflict)
		}, check: failed},
		{rule: "2.3", name: "a second final head after finish", script: func(s *script) {
			s.begin()
			s.call("finish", body, 0, 0)
			s.call("response_head", 201, 0, 0, 0)
		}, check: failed},
		{rule: "2.3", name: "a second final head after a flush", script: func(s *script) {
			s.beginFlushed()
			s.call("response_head", 201, 0, 0, 0)
		}, check: brokenOff},
		{rule: "2.4", name: "fewer bytes than the Content-Length says", script: func(s *script) {
			s.answer = noResults
			s.head(200, header("Content-Length", "10"), header("X-Guest", "1"))
			s.write("short")
		}, check: failed},
		{rule: "7.4", name: "closing the answer breaks it off", script: func(s *script) { s.begin(); s.call("close", body) }, check: failed},
		{rule: "7.4", name: "closing a committed answer breaks it off", script: func(s *script) { s.beginFlushed(); s.call("close", body) }, check: brokenOff},
	}
}

func lateCases() []testCase {
	return []testCase{
		{rule: "2.5", name: "a guest that does not answer in time", hasty: true, script: func(s *script) {
			s.begin()
			s.call("wait", 0, 0, -1)
		}, check: both(problem(http.StatusGatewayTimeout, "deadline_exceeded"), hasNo("X-Guest"))},
		{rule: "2.5", name: "a committed answer that does not end in time", hasty: true, script: func(s *script) {
			s.beginFlushed()
			s.call("wait", 0, 0, -1)
		}, check: brokenOff},
		{rule: "2.5", name: "a read that waits for too long", hasty: true, hold: true, script: func(s *script) {
			s.answer = noResults
			s.call("drain", abi.HandleRequestBody)
			s.call("wait", 0, 0, -1)
		}, check: problem(http.StatusGatewayTimeout, "deadline_exceeded")},
		{rule: "2.5", name: "a call that waits for too long", hasty: true, script: func(s *script) {
			s.answer = noResults
			h := s.call("fetch", s.text("up"), s.record(callTo("GET", "/hang")), 0, 0)
			s.call("fetch_head", h, 0, 0, 0)
			s.call("wait", 0, 0, -1)
		}, check: problem(http.StatusGatewayTimeout, "deadline_exceeded")},
	}
}

// failCases are those of response_fail.
func failCases() []testCase {
	const body = abi.HandleResponseBody
	return []testCase{
		{rule: "7.4", name: "response_fail throws an answer away that is not committed", script: func(s *script) {
			s.answer = resultsUpstream
			s.head(200, header("X-Guest", "1"))
			s.write("a part")
			s.call("response_fail", abi.Deferred, 1500, s.text("for the log")).gives(s, 0)
			s.call("response_head", 200, 0, 0, 0).fails(s, abi.Conflict)
			s.call("write", body, s.text("x"), 0).fails(s, abi.Conflict)
			s.call("flush", body).fails(s, abi.Conflict)
			s.call("finish", body, 0, 0).fails(s, abi.Conflict)
			s.call("response_fail", abi.Denied, 0, 0, 0).fails(s, abi.Conflict)
		}, check: both(problem(http.StatusServiceUnavailable, "deferred"), hasHeader("Retry-After", "2"), hasNo("X-Guest"),
			func(r response) error {
				if strings.Contains(r.body, "for the log") {
					return errors.New("the text reached the client")
				}
				return nil
			})},
		{rule: "7.4", name: "response_fail after the answer is committed", script: func(s *script) {
			s.head(200)
			s.call("flush", body).gives(s, 0)
			s.call("response_fail", abi.Internal, 0, 0, 0).fails(s, abi.Conflict)
			s.answer = resultsInDump
		}},
		{rule: "7.4", name: "response_fail knows codes only, and no negative time", script: func(s *script) {
			for _, code := range []int{0, 1, 100, int(abi.AnswerUnavailable) - 1, -1 << 31} {
				s.call("response_fail", code, 0, 0, 0).fails(s, abi.Invalid)
			}
			s.call("response_fail", abi.Deferred, -1, 0, 0).fails(s, abi.Invalid)
		}},
		{rule: "7.4", name: "response_fail cuts long texts", script: func(s *script) {
			s.answer = resultsUpstream
			s.call("response_fail", abi.NotFound, 0, s.text(strings.Repeat("long", abi.MaxLogLine))).gives(s, 0)
		}, check: problem(http.StatusNotFound, "not_found")},
	}
}

// failCodeCases leave the answer to the host with each code.
func failCodeCases() (cases []testCase) {
	for code, want := range failAnswers() {
		cases = append(cases, testCase{rule: "5", name: "response_fail with " + code.String(), script: func(s *script) {
			s.answer = noResults
			s.call("response_fail", code, 0, 0, 0)
		}, check: both(problem(want.status, want.code), retryAfter(want.later))})
	}
	return cases
}

// retryAfter expects Retry-After where it belongs and nowhere else.
func retryAfter(wanted bool) func(response) error {
	return func(r response) error {
		if value := r.Header.Get("Retry-After"); (value != "") != wanted || value == "0" {
			return fmt.Errorf("Retry-After %q", value)
		}
		return nil
	}
}

type failAnswer struct {
	status int
	code   string
	later  bool // with Retry-After
}

// failAnswers is the table of section 5.
func failAnswers() map[abi.Code]failAnswer {
	return map[abi.Code]failAnswer{
		abi.Invalid:           {400, "bad_request", false},
		abi.NotFound:          {404, "not_found", false},
		abi.Denied:            {403, "denied", false},
		abi.Conflict:          {409, "conflict", false},
		abi.LeaseBusy:         {409, "lease_busy", true},
		abi.LeaseLost:         {409, "lease_lost", false},
		abi.Fenced:            {409, "lease_lost", false},
		abi.BreakerOpen:       {503, "breaker_open", true},
		abi.Deferred:          {503, "deferred", true},
		abi.Overloaded:        {503, "overloaded", true},
		abi.Unavailable:       {503, "coordination_unavailable", true},
		abi.DeadlineExceeded:  {504, "deadline_exceeded", false},
		abi.Canceled:          {499, "canceled", false},
		abi.TooLarge:          {413, "too_large", false},
		abi.InProgress:        {409, "idempotency_in_progress", true},
		abi.Mismatch:          {422, "idempotency_mismatch", false},
		abi.ReservationLost:   {409, "conflict", false},
		abi.DependencyFailed:  {502, "dependency_failed", false},
		abi.OutcomeUnknown:    {504, "outcome_unknown", false},
		abi.Unsupported:       {500, "internal", false},
		abi.Again:             {500, "internal", false},
		abi.Internal:          {500, "internal", false},
		abi.AnswerUnavailable: {410, "answer_unavailable", false},
	}
}
