package runtime

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/edgehost/edgehost/guests/abi"
)

// hopByHop reports whether a field belongs to one connection and is therefore
// not passed on, in either direction (RFC 9110, section 7.6.1). Host counts as
// one: the authority of a request is a field of its own. The name must be in
// canonical form.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Proxy-Authenticate", "Proxy-Authorization", "Host":
		return true
	}
	return false
}

// options are the fields that Connection headers name, which are as little to be
// passed on as these. They are nil for almost every message.
type options map[string]bool

func (o options) with(line string) options {
	for name := range strings.SplitSeq(line, ",") {
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if name == "" || name == "Close" || name == "Keep-Alive" {
			continue
		}
		if o == nil {
			o = make(options)
		}
		o[name] = true
	}
	return o
}

// appendHeader appends the end-to-end fields of h to a record.
func appendHeader(record []byte, h http.Header) []byte {
	var named options
	for _, line := range h["Connection"] {
		named = named.with(line)
	}
	for name, values := range h {
		if hopByHop(name) || named[name] {
			continue
		}
		for _, value := range values {
			record = abi.AppendPair(record, abi.FieldHeader, name, value)
		}
	}
	return record
}

var (
	errHeaderName  = fmt.Errorf("header name is not a token: %w", abi.Invalid)
	errHeaderValue = fmt.Errorf("header value has control characters: %w", abi.Invalid)
	errHeaderSize  = fmt.Errorf("header is larger than its limit: %w", abi.TooLarge)
	errLengthField = fmt.Errorf("Content-Length is not one decimal number: %w", abi.Invalid)
)

// fields are the checked header fields of a guest's record.
type fields struct {
	record []byte // aliases the guest's memory
	named  options
	length int64 // the Content-Length; -1 if there is none
}

// parseFields checks a record that holds nothing but header fields, so that they
// are taken all or not at all.
func parseFields(record []byte, limit int64) (fields, error) {
	f := fields{record: record, length: -1}
	for rest := record; len(rest) > 0; {
		field, next, err := abi.Next(rest)
		if err != nil {
			return f, err
		}
		rest = next
		if field.Tag != abi.FieldHeader {
			if err := field.Unknown(); err != nil {
				return f, err
			}
			continue
		}
		name, value, err := field.Pair()
		if err != nil {
			return f, err
		}
		if limit -= int64(len(name) + len(value)); limit < 0 {
			return f, errHeaderSize
		}
		if err := f.check(name, value); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *fields) check(name, value []byte) error {
	if !validToken(name) {
		return errHeaderName
	}
	if !validValue(value) {
		return errHeaderValue
	}
	switch len(name) {
	case len("Connection"):
		if strings.EqualFold(string(name), "Connection") {
			f.named = f.named.with(string(value))
		}
	case len("Content-Length"):
		if !strings.EqualFold(string(name), "Content-Length") {
			break
		}
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || f.length >= 0 {
			return errLengthField
		}
		f.length = int64(n)
	}
	return nil
}

// addTo adds the fields to h, except for those of one connection and those that
// drop reports.
func (f fields) addTo(h http.Header, drop func(name string) bool) {
	for rest := f.record; len(rest) > 0; {
		field, next, err := abi.Next(rest)
		if err != nil {
			return // it was checked
		}
		rest = next
		if field.Tag != abi.FieldHeader {
			continue
		}
		name, value, _ := field.Pair()
		key := http.CanonicalHeaderKey(string(name))
		if !hopByHop(key) && !f.named[key] && !drop(key) {
			h[key] = append(h[key], string(value))
		}
	}
}

// notInAnswer reports whether a field of an answer is the host's.
func notInAnswer(name string) bool { return name == "X-Request-Id" }

// notInCall reports whether a field of an outbound call is the host's.
func notInCall(name string) bool { return name == "Content-Length" || name == fenceHeader }

// notInTrailers reports whether a field must not come after the body (RFC 9110,
// section 6.5.1).
func notInTrailers(name string) bool {
	switch name {
	case "Content-Length", "Content-Type", "Content-Encoding", "Set-Cookie":
		return true
	}
	return notInAnswer(name)
}

// fenceHeader carries the fence of the lease under which a call is made.
const fenceHeader = "Edgehost-Fence"

// validToken follows RFC 9110, section 5.6.2.
func validToken(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return false
		}
	}
	return len(b) > 0
}

// validValue follows RFC 9110, section 5.5: no control characters but the tab.
func validValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
