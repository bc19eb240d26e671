package runtime

import (
	"net/http"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A problem is a stable code of the answers that the host gives by itself, in
// the form of RFC 9457. Its title is all that a client learns: what really
// happened goes to the log under the request's id.
type problem struct {
	code   string
	title  string
	status int
}

// problems says what a client is told for each code of the ABI, at the index
// -code. Index zero is never sent.
var problems = [...]problem{
	0:                      {"ok", "", http.StatusOK},
	-abi.Invalid:           {"bad_request", "The request is not valid", http.StatusBadRequest},
	-abi.NotFound:          {"not_found", "There is no such resource", http.StatusNotFound},
	-abi.Denied:            {"denied", "The function may not do this", http.StatusForbidden},
	-abi.Conflict:          {"conflict", "The resource was changed by somebody else", http.StatusConflict},
	-abi.LeaseBusy:         {"lease_busy", "Another request is working on the resource", http.StatusConflict},
	-abi.LeaseLost:         {"lease_lost", "The resource was taken over by another request", http.StatusConflict},
	-abi.Fenced:            {"lease_lost", "The resource was taken over by another request", http.StatusConflict},
	-abi.BreakerOpen:       {"breaker_open", "A service that this function depends on is failing", http.StatusServiceUnavailable},
	-abi.Deferred:          {"deferred", "A service that this function depends on is being tested for recovery", http.StatusServiceUnavailable},
	-abi.Overloaded:        {"overloaded", "Too much is going on at the moment", http.StatusServiceUnavailable},
	-abi.Unavailable:       {"coordination_unavailable", "Coordination is not available at the moment", http.StatusServiceUnavailable},
	-abi.DeadlineExceeded:  {"deadline_exceeded", "The function did not answer in time", http.StatusGatewayTimeout},
	-abi.Canceled:          {"canceled", "The request was canceled", statusClientClosed},
	-abi.TooLarge:          {"too_large", "The request is too large", http.StatusRequestEntityTooLarge},
	-abi.InProgress:        {"idempotency_in_progress", "The same request is being executed", http.StatusConflict},
	-abi.Mismatch:          {"idempotency_mismatch", "The idempotency key was used with another request", http.StatusUnprocessableEntity},
	-abi.ReservationLost:   {"conflict", "Another execution of the same request has taken over", http.StatusConflict},
	-abi.DependencyFailed:  {"dependency_failed", "A service that this function depends on has failed", http.StatusBadGateway},
	-abi.OutcomeUnknown:    {"outcome_unknown", "It is not known whether the request took effect", http.StatusGatewayTimeout},
	-abi.Unsupported:       {"internal", "The host does not support what the function needs", http.StatusInternalServerError},
	-abi.Again:             {"internal", "Something went wrong", http.StatusInternalServerError},
	-abi.Internal:          {"internal", "Something went wrong", http.StatusInternalServerError},
	-abi.AnswerUnavailable: {"answer_unavailable", "The request was carried out, and its answer is not kept", http.StatusGone},
}

// Problems that are no code of the ABI: guests do not report them.
var (
	problemNoRoute  = problem{"no_route", "Nothing is served at this address", http.StatusNotFound}
	problemMethod   = problem{"method_not_allowed", "The resource does not have this method", http.StatusMethodNotAllowed}
	problemFunction = problem{"function_failed", "The function failed", http.StatusBadGateway}
)

// statusClientClosed is what nginx logs for a client that did not wait. Nobody
// receives it.
const statusClientClosed = 499

// problemOf returns what a client is told about a code: "internal" about one
// that is not in the table, since guests can make numbers up.
func problemOf(code abi.Code) problem {
	if !code.Valid() {
		code = abi.Internal
	}
	return problems[-code]
}

// later reports whether an answer with this problem asks the client to come
// back, which needs a Retry-After.
func (p problem) later() bool {
	return p.status == http.StatusServiceUnavailable ||
		p.code == "lease_busy" || p.code == "idempotency_in_progress"
}

// write answers with the problem document. All header fields that are set on w
// beforehand and describe another body are replaced.
func (p problem) write(w http.ResponseWriter, id string, retryAfter time.Duration) {
	body := p.document(id)
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["Cache-Control"] = []string{"no-store"}
	if p.later() {
		h["Retry-After"] = []string{retrySeconds(retryAfter)}
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // a client that has gone away needs no answer
}

// document returns the body. Nothing in it needs escaping: titles and codes are
// constants, and ids are checked where they come in.
func (p problem) document(id string) []byte {
	b := make([]byte, 0, 256)
	b = append(b, `{"type":"urn:edgehost:problem:`...)
	b = append(b, p.code...)
	b = append(b, `","title":"`...)
	b = append(b, p.title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"code":"`...)
	b = append(b, p.code...)
	b = append(b, `","request_id":"`...)
	b = append(b, id...)
	return append(b, "\"}\n"...)
}

// retrySeconds rounds up to whole seconds, the unit of Retry-After (RFC 9110,
// section 10.2.3), and never to zero: "now" would be an invitation to hammer.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
