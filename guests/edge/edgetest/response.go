//go:build !wasip1

package edgetest

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
)

// held is how much of a response waits for more before the client sees it.
const held = 4 << 10

// ResponseHead implements host.Functions.
func (x *exchange) ResponseHead(status int32, head []byte, flags uint32) int32 {
	x.called("response_head")
	header, err := parseHeader(head)
	length := int64(-1)
	if text := header.Get("Content-Length"); err == nil && text != "" {
		if length, err = strconv.ParseInt(text, 10, 64); err != nil || length < 0 {
			err = refusal(abi.Invalid, "the Content-Length is no length")
		}
	}
	if err = errors.Join(err, flagsKnown(flags), x.alive()); err != nil {
		return x.result(0, err)
	}
	switch {
	case x.given:
		x.broken = x.broken || status >= 200
		err = refusal(abi.Conflict, "a final head has been given")
	case status < 100 || status > 599 || status == http.StatusSwitchingProtocols:
		err = refusal(abi.Invalid, "the status is out of range")
	case status < 200:
		x.response.Informational = append(x.response.Informational, int(status))
	default:
		x.given, x.length = true, length
		x.response.Status, x.response.Header = int(status), header
	}
	return x.result(0, err)
}

// ResponseFail implements host.Functions.
func (x *exchange) ResponseFail(code, retryMillis int32, text string) int32 {
	x.called("response_fail")
	err := x.alive()
	switch {
	case err != nil:
	case !abi.Code(code).Valid() || retryMillis < 0:
		err = refusal(abi.Invalid, "no such code, or a negative retry time")
	case x.committed || x.response.Code != 0:
		err = refusal(abi.Conflict, "the client has seen a part of the response")
	}
	if err != nil {
		return x.result(0, err)
	}
	x.given, x.ended, x.length = true, true, -1
	x.response = Response{
		Status:  problemStatus(abi.Code(code)),
		Header:  http.Header{"Content-Type": {"application/problem+json"}},
		Trailer: http.Header{},
		Code:    edge.Code(code),
		Detail:  text[:min(len(text), abi.MaxLogLine)],

		Informational: x.response.Informational,
	}
	if retryMillis > 0 {
		seconds := math.Ceil((time.Duration(retryMillis) * time.Millisecond).Seconds())
		x.response.Header.Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	return 0
}

// respond takes bytes of the response.
func (x *exchange) respond(p []byte) (int, error) {
	switch err := x.alive(); {
	case err != nil:
		return 0, err
	case !x.given || x.ended:
		return 0, refusal(abi.Conflict, "no final head, or the response is complete")
	case x.bodyless():
		return len(p), nil
	case x.length >= 0 && int64(len(x.response.Body)+len(p)) > x.length:
		return 0, refusal(abi.Invalid, "more than the Content-Length")
	}
	x.response.Body = append(x.response.Body, p...)
	x.committed = x.committed || len(x.response.Body) > held
	return len(p), nil
}

// bodyless reports whether the response is one whose bytes are dropped.
func (x *exchange) bodyless() bool {
	s := x.response.Status
	return x.request.Method == http.MethodHead || s == http.StatusNoContent || s == http.StatusNotModified
}

func (x *exchange) flush() error {
	if err := x.alive(); err != nil {
		return err
	}
	if !x.given || x.response.Code != 0 {
		return refusal(abi.Conflict, "there is nothing to flush")
	}
	x.committed = true
	return nil
}

func (x *exchange) finish(trailer http.Header) error {
	switch err := x.alive(); {
	case err != nil:
		return err
	case !x.given || x.ended:
		return refusal(abi.Conflict, "no final head, or the response is complete")
	case x.short():
		return refusal(abi.Invalid, "less than the Content-Length")
	}
	x.ended = true
	x.response.Trailer = trailer
	return nil
}

// short reports whether bytes are missing.
func (x *exchange) short() bool {
	return !x.bodyless() && x.length > int64(len(x.response.Body))
}

// settle completes the response with the result of edgehost_handle.
func (x *exchange) settle(result int32) {
	r := &x.response
	r.Failed = result < 0 || result > abi.HandleRetire || x.broken || !x.given || x.short()
	r.Retired = r.Failed || result == abi.HandleRetire
	r.Aborted = r.Failed && x.committed
	if r.Failed && !r.Aborted {
		*r = Response{Status: http.StatusBadGateway, Header: http.Header{}, Failed: true, Retired: true}
	}
}

// A reader is a body that the guest reads.
type reader struct {
	from  io.Reader
	ended bool
	err   error // final
}

// take reads between one byte and all that p holds, zero at the end.
func (r *reader) take(p []byte) (int, error) {
	for !r.ended && r.err == nil {
		n, err := r.from.Read(p)
		r.ended = err == io.EOF
		if err != nil && err != io.EOF {
			r.err = bodyError(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// bodyError gives an error of the client's body its code.
func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusal(abi.TooLarge, err.Error())
	}
	return refusal(abi.Canceled, err.Error())
}
