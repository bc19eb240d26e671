package kvbucket_test

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgehost/edgehost/kvbucket"
)

func TestEscapeKeepsNamesReadable(t *testing.T) {
	tests := []struct{ name, part string }{
		{"payments", "payments"},
		{"guild-settings/42", "guild-settings/42"},
		{"Kept_as-it/is09", "Kept_as-it/is09"},
		{"api.example.com", "api=2Eexample=2Ecom"},
		{"a=2E", "a=3D2E"},
		{"two words", "two=20words"},
		{"ü", "=C3=BC"},
		{"", "="},
		{"=", "=3D"},
		{"*", "=2A"},
		{">", "=3E"},
		{"\x00\xff", "=00=FF"},
	}
	for _, tt := range tests {
		if got := kvbucket.Escape(tt.name); got != tt.part {
			t.Errorf("Escape(%q) = %q, want %q", tt.name, got, tt.part)
		}
	}
}

// The alphabet of NATS KV without the dot, which separates parts.
var partAlphabet = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+$`)

func TestEscapeIsReversibleAndWithinTheAlphabet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOf(rapid.Byte()).Draw(t, "name"))
		part := kvbucket.Escape(name)
		if !partAlphabet.MatchString(part) {
			t.Fatalf("Escape(%q) = %q", name, part)
		}
		if back, err := kvbucket.Unescape(part); err != nil || back != name {
			t.Fatalf("%q became %q, then %q and error %v", name, part, back, err)
		}
	})
}

func TestNoTwoPartsStandForOneName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[=A-Fa-f0-9./*]{0,8}`).Draw(t, "part")
		name, err := kvbucket.Unescape(part)
		if err == nil && kvbucket.Escape(name) != part {
			t.Fatalf("%q and %q stand for %q", part, kvbucket.Escape(name), name)
		}
	})
}

func TestUnescapeRefusesWhatEscapeNeverReturns(t *testing.T) {
	for _, part := range []string{"", "a.b", "=2e", "=2", "a=", "=61", "==", "=selftest", "ü", "a b"} {
		if name, err := kvbucket.Unescape(part); err == nil {
			t.Errorf("Unescape(%q) = %q", part, name)
		}
	}
}
