package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Duration is a time.Duration that reads and prints as "250ms", "5s" or "2m".
type Duration time.Duration

// String returns the duration without zero parts: "5m", not "5m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func parseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("write a number and a unit, such as \"250ms\", \"5s\" or \"2m\"")
	}
	return Duration(d), nil
}

// A Size is a number of bytes that reads and prints as "64MiB".
type Size int64

// sizeUnits are the units of sizes, the largest first. Only powers of 1024:
// memory is counted in them, and "MB" would leave open which is meant.
var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String returns the size in the largest unit that shows it exactly.
func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s != 0 && s%unit.bytes == 0 {
			return strconv.FormatInt(int64(s/unit.bytes), 10) + unit.name
		}
	}
	return "0B"
}

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func parseSize(text string) (Size, error) {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err == nil && n <= int64(1<<62/unit.bytes) {
			return Size(n) * unit.bytes, nil
		}
		break
	}
	return 0, errors.New("write a whole number and B, KiB, MiB or GiB, such as \"64MiB\"")
}

// A Text is a string of the manifest with its place.
type Text struct {
	Value string
	At    Position
}

// String returns the text alone.
func (t Text) String() string { return t.Value }

// MarshalText implements [encoding.TextMarshaler].
func (t Text) MarshalText() ([]byte, error) { return []byte(t.Value), nil }

// expand replaces ${NAME} and ${NAME:-default} by the environment's values.
// The default also stands in for a variable that is set but empty, as in a
// shell. $${ stands for ${. It returns one error per variable that has neither.
func expand(text string, env func(string) (string, bool)) (string, []error) {
	var out strings.Builder
	var errs []error
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), errs
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		reference, after, closed := strings.Cut(rest, "}")
		if !closed {
			return out.String(), append(errs, errors.New("\"${\" without \"}\""))
		}
		value, err := variable(reference, env)
		if err != nil {
			errs = append(errs, err)
		}
		out.WriteString(before + value)
		text = after
	}
}

func variable(reference string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasDefault := strings.Cut(reference, ":-")
	if !isVariableName(name) {
		return "", fmt.Errorf("${%s} names no environment variable", reference)
	}
	value, ok := env(name)
	switch {
	case hasDefault && value == "":
		return fallback, nil
	case !ok:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return value, nil
}

// isVariableName reports whether name can be set in a shell.
func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
