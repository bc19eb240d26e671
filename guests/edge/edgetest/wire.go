//go:build !wasip1

package edgetest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// fields yields the fields of a record from the guest to take, which answers
// false for a tag that the function does not know. Only headers may be repeated.
func fields(record []byte, take func(abi.Field) (known bool, err error)) error {
	if len(record) > abi.MaxHead {
		return refusal(abi.TooLarge, "the record is too large")
	}
	seen := map[abi.Tag]bool{}
	for len(record) > 0 {
		f, rest, err := abi.Next(record)
		if err != nil {
			return err
		}
		record = rest
		if seen[f.Tag] {
			return refusal(abi.Invalid, "a field appears twice")
		}
		seen[f.Tag] = f.Tag != abi.FieldHeader
		known, err := take(f)
		if err == nil && !known {
			err = f.Unknown()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseHeader reads a record of header fields.
func parseHeader(record []byte) (http.Header, error) {
	header := http.Header{}
	err := fields(record, func(f abi.Field) (bool, error) {
		return f.Tag == abi.FieldHeader, addHeader(header, f)
	})
	return header, err
}

func addHeader(header http.Header, f abi.Field) error {
	if f.Tag != abi.FieldHeader {
		return nil
	}
	name, value, err := f.Pair()
	if err != nil {
		return err
	}
	if !isToken(string(name)) || bytes.ContainsFunc(value, isControl) {
		return refusal(abi.Invalid, "a header field is not valid in HTTP")
	}
	if !slices.Contains(connectionFields, http.CanonicalHeaderKey(string(name))) {
		header.Add(string(name), string(value))
	}
	return nil
}

// connectionFields are dropped in both directions, and so is what only the host
// may say.
var connectionFields = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization", "Host", "X-Request-Id", "Edgehost-Fence",
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}

// statusClientClosedRequest has no name in net/http; nginx made it known.
const statusClientClosedRequest = 499

// problemStatus returns the HTTP status with which a host answers a code.
func problemStatus(code abi.Code) int {
	switch code {
	case abi.Invalid:
		return http.StatusBadRequest
	case abi.NotFound:
		return http.StatusNotFound
	case abi.Denied:
		return http.StatusForbidden
	case abi.Conflict, abi.LeaseBusy, abi.LeaseLost, abi.Fenced, abi.InProgress, abi.ReservationLost:
		return http.StatusConflict
	case abi.TooLarge:
		return http.StatusRequestEntityTooLarge
	case abi.Mismatch:
		return http.StatusUnprocessableEntity
	case abi.BreakerOpen, abi.Deferred, abi.Overloaded, abi.Unavailable:
		return http.StatusServiceUnavailable
	case abi.DependencyFailed:
		return http.StatusBadGateway
	case abi.DeadlineExceeded, abi.OutcomeUnknown:
		return http.StatusGatewayTimeout
	case abi.Canceled:
		return statusClientClosedRequest
	default:
		return http.StatusInternalServerError
	}
}

// appendHeader appends header fields, sorted by name.
func appendHeader(b []byte, header http.Header) []byte {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			b = abi.AppendPair(b, abi.FieldHeader, name, value)
		}
	}
	return b
}

// nanoseconds reads a duration.
func nanoseconds(f abi.Field) (time.Duration, error) {
	n, err := f.Number()
	if err == nil && int64(n) < 0 {
		err = refusal(abi.Invalid, "a duration is out of range")
	}
	return time.Duration(n), err
}
