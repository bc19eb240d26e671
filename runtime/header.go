package runtime

import (
	"fmt"
	"net/http"
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

// connectionOptions returns the fields that a Connection header names, which
// are as little to be passed on as itself. It is nil for almost every message.
func connectionOptions(h http.Header) map[string]bool {
	var options map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if name == "" || name == "Close" || name == "Keep-Alive" {
				continue
			}
			if options == nil {
				options = make(map[string]bool)
			}
			options[name] = true
		}
	}
	return options
}

// appendHeader appends the end-to-end fields of h to a record.
func appendHeader(record []byte, h http.Header) []byte {
	options := connectionOptions(h)
	for name, values := range h {
		if hopByHop(name) || options[name] {
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
)

// addPair adds the field of a guest to h, unless it is hop-by-hop. The sizes of
// names and values are taken off left.
func addPair(h http.Header, f abi.Field, left *int64) error {
	name, value, err := f.Pair()
	if err != nil {
		return err
	}
	if !validToken(name) {
		return errHeaderName
	}
	if !validValue(value) {
		return errHeaderValue
	}
	if *left -= int64(len(name) + len(value)); *left < 0 {
		return errHeaderSize
	}
	key := http.CanonicalHeaderKey(string(name))
	if !hopByHop(key) {
		h[key] = append(h[key], string(value))
	}
	return nil
}

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
