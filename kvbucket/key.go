package kvbucket

import (
	"errors"
	"fmt"
	"strings"
)

const upperHex = "0123456789ABCDEF"

// emptyPart is the escape of the empty name: an escape sign with nothing behind.
const emptyPart = "="

// selfTestKey is reserved for the test that [Conn.Bucket] makes. It is no part
// that Escape can return, so no caller's key is lost to it.
const selfTestKey = "=selftest"

var errNotEscaped = errors.New("kvbucket: not a part that Escape returns")

// Escape turns any name into one part of a key. Letters, digits, "-", "_" and "/"
// stay as they are, so an operator reads the name in the store; every other byte,
// the dot that separates parts among them, becomes "=" and two upper-case
// hexadecimal digits, as in quoted-printable. The empty name becomes "=".
// Different names have different parts, and [Unescape] is the inverse.
//
// The result is within the key alphabet of NATS KV, [-/_=.a-zA-Z0-9] (ADR-8).
func Escape(name string) string {
	if name == "" {
		return emptyPart
	}
	escapes := 0
	for i := range len(name) {
		if !plain(name[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return name
	}
	part := make([]byte, 0, len(name)+2*escapes)
	for i := range len(name) {
		if c := name[i]; plain(c) {
			part = append(part, c)
		} else {
			part = append(part, '=', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(part)
}

// Unescape returns the name that Escape turned into part. It is an error if Escape
// returns part for no name, so two parts never stand for one name.
func Unescape(part string) (string, error) {
	if part == emptyPart {
		return "", nil
	}
	name := make([]byte, 0, len(part))
	for rest := part; rest != ""; {
		c, size := unescapeByte(rest)
		if size == 0 {
			return "", fmt.Errorf("%w: %q", errNotEscaped, part)
		}
		name = append(name, c)
		rest = rest[size:]
	}
	if len(name) == 0 {
		return "", fmt.Errorf("%w: %q", errNotEscaped, part)
	}
	return string(name), nil
}

// unescapeByte returns the first byte that s stands for and how many bytes of s
// stand for it: none if s does not begin as Escape writes it.
func unescapeByte(s string) (c byte, size int) {
	if plain(s[0]) {
		return s[0], 1
	}
	if s[0] != '=' || len(s) < 3 {
		return 0, 0
	}
	hi, lo := strings.IndexByte(upperHex, s[1]), strings.IndexByte(upperHex, s[2])
	if hi < 0 || lo < 0 {
		return 0, 0
	}
	if c = byte(hi<<4 | lo); plain(c) {
		return 0, 0
	}
	return c, 3
}

// plain reports whether c stands for itself in a key.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '/'
}

// checkKey returns ErrInvalidKey unless key is one that a caller may use.
func checkKey(key string) error {
	if key == selfTestKey || !validParts(key, nil) {
		return fmt.Errorf("%w: %q", ErrInvalidKey, key)
	}
	return nil
}

// checkPattern returns ErrInvalidKey unless pattern can match a key.
func checkPattern(pattern string) error {
	wildcard := func(part string, last bool) bool { return part == "*" || part == ">" && last }
	if !validParts(pattern, wildcard) {
		return fmt.Errorf("%w: %q is no pattern", ErrInvalidKey, pattern)
	}
	return nil
}

// validParts reports whether key is made of parts in the alphabet, or parts that
// except allows.
func validParts(key string, except func(part string, last bool) bool) bool {
	if len(key) > MaxKey {
		return false
	}
	for more := true; more; {
		var part string
		part, key, more = strings.Cut(key, ".")
		if !validPart(part) && (except == nil || !except(part, !more)) {
			return false
		}
	}
	return true
}

func validPart(part string) bool {
	for i := range len(part) {
		if c := part[i]; !plain(c) && c != '=' {
			return false
		}
	}
	return part != ""
}

// matches reports whether key matches pattern. Both are valid.
func matches(pattern, key string) bool {
	for {
		p, patternRest, patternMore := strings.Cut(pattern, ".")
		k, keyRest, keyMore := strings.Cut(key, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != k, patternMore != keyMore:
			return false
		case !patternMore:
			return true
		}
		pattern, key = patternRest, keyRest
	}
}
