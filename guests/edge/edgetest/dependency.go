//go:build !wasip1

package edgetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// An upstream answers calls, or refuses them.
type upstream struct {
	handler http.Handler
	refusal *edge.CallError
}

// Dependency gives the function a dependency that answers with the handler, as
// a closed breaker lets it. The handler sees what the dependency would: the
// fence of the lease in Edgehost-Fence, and a context that ends with the call's
// timeout. If it panics, the call fails with DependencyFailed; if it returns
// after its context has ended, with DeadlineExceeded.
func (h *Host) Dependency(name string, handler http.Handler) {
	h.with(func() { h.dependencies[name] = upstream{handler: handler} })
}

// Refuse gives the function a dependency to which no call is sent: they fail
// with the code and the retry time, and so does Admit.
func (h *Host) Refuse(name string, code edge.Code, retryAfter time.Duration) {
	refused := &edge.CallError{Code: code, RetryAfter: retryAfter, Detail: "refused by the test"}
	h.with(func() { h.dependencies[name] = upstream{refusal: refused} })
}

// Allow lets the function reach a host (with its port, if the URL has one) by
// the plain edge.Fetch, and answers with the handler.
func (h *Host) Allow(hostport string, handler http.Handler) {
	h.with(func() { h.hosts[hostport] = upstream{handler: handler} })
}

// Outcomes returns what the guest reported of its admissions to a dependency.
func (h *Host) Outcomes(dependency string) (outcomes []edge.Outcome) {
	h.with(func() { outcomes = slices.Clone(h.outcomes[dependency]) })
	return outcomes
}

// upstream returns what answers a call, or why nothing may.
func (h *Host) upstream(dependency string, u *url.URL) (upstream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	up, ok := h.dependencies[dependency]
	if dependency == "" {
		up, ok = h.hosts[u.Host]
	}
	if !ok {
		return upstream{}, refusal(abi.Denied, "not in the manifest")
	}
	return up, nil
}

// A call is one fetch. Its verdict is an error or an answer.
type call struct {
	callRequest
	up       upstream
	streamed bool
	sent     bytes.Buffer // the body
	complete bool         // the body is
	verdict  error
	head     []byte // of the answer, nil before there is one
	trailer  http.Header
	reader   reader
}

// A callRequest is the record of fetch.
type callRequest struct {
	method, target string
	header         http.Header
	body           []byte // inline, nil without one
	timeout        time.Duration
	lease          *grant
}

// Fetch implements host.Functions.
func (x *exchange) Fetch(dep string, record []byte, mode, flags uint32) int32 {
	x.called("fetch")
	c, err := x.newCall(dep, record, mode)
	if err = errors.Join(err, flagsKnown(flags), x.alive()); err != nil {
		return x.result(0, err)
	}
	h, err := x.add(c)
	if err == nil && !c.streamed {
		err = c.finish(nil)
	}
	return x.result(h, err)
}

func (x *exchange) newCall(dep string, record []byte, mode uint32) (*call, error) {
	r, err := x.parseCall(record)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(r.target)
	switch {
	case mode > abi.BodyStream:
		return nil, refusal(abi.Unsupported, "undefined body mode")
	case err != nil || !isToken(r.method) || (r.body != nil) != (mode == abi.BodyInline):
		return nil, refusal(abi.Invalid, "method, target, or a body that is not what its mode says")
	case dep != "" && r.target[:1] != "/", dep == "" && (u.Host == "" || u.User != nil):
		return nil, refusal(abi.Invalid, "the target is no path, or no URL for a plain call")
	}
	c := &call{callRequest: r, streamed: mode == abi.BodyStream}
	c.sent.Write(r.body)
	if c.up, err = x.host.upstream(dep, u); err != nil {
		return nil, err
	}
	if r.lease != nil {
		err = x.host.held(r.lease)
		r.header.Set("Edgehost-Fence", strconv.FormatUint(r.lease.fence, 10))
	}
	if c.up.refusal != nil {
		c.verdict = c.up.refusal
	}
	return c, err
}

// parseCall reads the record of fetch.
func (x *exchange) parseCall(record []byte) (r callRequest, err error) {
	r.header = http.Header{}
	err = fields(record, func(f abi.Field) (known bool, err error) {
		switch f.Tag {
		case abi.FieldMethod:
			r.method = string(f.Value)
		case abi.FieldTarget:
			r.target = string(f.Value)
		case abi.FieldHeader:
			err = addHeader(r.header, f)
		case abi.FieldBody:
			r.body = append([]byte{}, f.Value...)
		case abi.FieldTimeout:
			r.timeout, err = nanoseconds(f)
		case abi.FieldLease:
			var h uint64
			if h, err = f.Number(); err == nil {
				r.lease, err = handle[*grant](x, int32(h))
			}
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil && (r.method == "" || r.target == "") {
		err = refusal(abi.Invalid, "no method or no target")
	}
	return r, err
}

// write takes a part of a streamed body.
func (c *call) write(p []byte) (int, error) {
	switch {
	case !c.streamed:
		return 0, refusal(abi.Invalid, "the call has no streamed body")
	case c.verdict != nil:
		return 0, c.verdict
	case c.complete:
		return 0, refusal(abi.Conflict, "the body is complete")
	}
	return c.sent.Write(p)
}

// finish completes the body and lets the upstream answer.
func (c *call) finish(trailer http.Header) error {
	switch {
	case c.complete:
		return refusal(abi.Conflict, "the body is complete")
	case len(trailer) > 0:
		return refusal(abi.Unsupported, "a call cannot have trailers")
	}
	c.complete = true
	if c.verdict == nil {
		host.Unlabeled(func() { c.verdict = c.run() })
	}
	return nil
}

// run calls the upstream and keeps its answer.
func (c *call) run() (err error) {
	ctx := context.Background()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	defer func() {
		if v := recover(); v != nil {
			err = refusal(abi.DependencyFailed, fmt.Sprint(v))
		}
	}()
	r, rec := httptest.NewRequestWithContext(ctx, c.method, c.target, &c.sent), httptest.NewRecorder()
	r.Header = c.header
	c.up.handler.ServeHTTP(rec, r)
	if ctx.Err() != nil {
		return refusal(abi.DeadlineExceeded, "the call's timeout is over")
	}
	answer := rec.Result()
	c.trailer = answer.Trailer
	c.reader.from = rec.Body
	c.head = abi.AppendNumber(nil, abi.FieldStatus, uint64(answer.StatusCode))
	c.head = abi.AppendText(c.head, abi.FieldProtocol, answer.Proto)
	c.head = appendHeader(c.head, answer.Header)
	c.head = abi.AppendNumber(c.head, abi.FieldContentLength, uint64(rec.Body.Len()))
	return nil
}

// answer returns the body of the answer.
func (c *call) answer() (*reader, error) {
	switch {
	case c.verdict != nil:
		return nil, c.verdict
	case !c.complete:
		return nil, refusal(abi.DeadlineExceeded, "the guest waits for an answer before it has sent the body")
	}
	return &c.reader, nil
}

// FetchHead implements host.Functions.
func (x *exchange) FetchHead(h int32, p []byte, flags uint32) int32 {
	x.called("fetch_head")
	c, err := handle[*call](x, h)
	if err == nil {
		_, err = c.answer()
	}
	if err == nil && c.lease != nil {
		err = x.host.held(c.lease)
	}
	if err = errors.Join(err, flagsKnown(flags), x.alive()); err != nil {
		return x.result(0, err)
	}
	return x.result(copyOut(p, c.head), nil)
}

// An admission is the name of the dependency that admitted.
type admission string

// Admit implements host.Functions.
func (x *exchange) Admit(dep string, flags uint32) int32 {
	x.called("admit")
	err := named(dep)
	if err == nil && flags != 0 {
		err = refusal(abi.Unsupported, "flags")
	}
	if err = errors.Join(err, x.alive()); err != nil {
		return x.result(0, err)
	}
	up, err := x.host.upstream(dep, nil)
	if err == nil && up.refusal != nil {
		err = up.refusal
	}
	if err != nil {
		return x.result(0, err)
	}
	return x.result(x.add(admission(dep)))
}

// Report implements host.Functions.
func (x *exchange) Report(h, outcome int32) int32 {
	x.called("report")
	a, err := handle[admission](x, h)
	if err == nil && (outcome < abi.OutcomeSuccess || outcome > abi.OutcomeExcluded) {
		err = refusal(abi.Unsupported, "undefined outcome")
	}
	if err != nil {
		return x.result(0, err)
	}
	delete(x.handles, h)
	x.host.with(func() {
		x.host.outcomes[string(a)] = append(x.host.outcomes[string(a)], edge.Outcome(outcome))
	})
	return 0
}
