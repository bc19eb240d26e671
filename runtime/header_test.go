package runtime

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
)

func TestFieldsAreTakenAllOrNotAtAll(t *testing.T) {
	pair := func(name, value string) []byte { return abi.AppendPair(nil, abi.FieldHeader, name, value) }
	for name, c := range map[string]struct {
		record []byte
		want   abi.Code
	}{
		"no name":               {pair("", "v"), abi.Invalid},
		"a space in a name":     {pair("a b", "v"), abi.Invalid},
		"a colon in a name":     {pair("a:", "v"), abi.Invalid},
		"a letter of no token":  {pair("é", "v"), abi.Invalid},
		"a line feed":           {pair("a", "v\nx: y"), abi.Invalid},
		"a null":                {pair("a", "\x00"), abi.Invalid},
		"a delete":              {pair("a", "\x7f"), abi.Invalid},
		"too much":              {pair("a", string(make([]byte, 100))), abi.TooLarge},
		"half a field":          {pair("a", "v")[:7], abi.Invalid},
		"another field":         {abi.AppendText(nil, abi.FieldMethod, "GET"), abi.Unsupported},
		"two lengths":           {append(pair("Content-Length", "1"), pair("content-length", "1")...), abi.Invalid},
		"a negative length":     {pair("Content-Length", "-1"), abi.Invalid},
		"an optional field":     {abi.AppendText(nil, 999|abi.TagOptional, "x"), 0},
		"a tab and high octets": {pair("a", "\té"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseFields(c.record, 64); abi.CodeOf(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestFieldsOfOneConnectionAreDropped(t *testing.T) {
	var record []byte
	for _, f := range [][2]string{
		{"Set-Cookie", "a"},
		{"set-cookie", "b"},
		{"Connection", "x-hop, close"},
		{"X-Hop", "1"},
		{"TE", "trailers"},
		{"Host", "h"},
		{"X-Request-Id", "mine"},
	} {
		record = abi.AppendPair(record, abi.FieldHeader, f[0], f[1])
	}
	f, err := parseFields(record, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	got := make(http.Header)
	f.addTo(got, notInAnswer)
	if diff := cmp.Diff(http.Header{"Set-Cookie": {"a", "b"}}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseFields(f *testing.F) {
	f.Add(abi.AppendPair(nil, abi.FieldHeader, "Connection", "a, b"))
	f.Add([]byte{7, 0, 2, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, record []byte) {
		const limit = 1 << 10
		fields, err := parseFields(record, limit)
		if err != nil {
			if code := abi.CodeOf(err); code == abi.Internal {
				t.Errorf("%v has no code", err)
			}
			return
		}
		h := make(http.Header)
		fields.addTo(h, notInAnswer)
		size := 0
		for name, values := range h {
			for _, value := range values {
				size += len(name) + len(value)
				if !validToken([]byte(name)) || !validValue([]byte(value)) || hopByHop(name) {
					t.Errorf("%q: %q came through", name, value)
				}
			}
		}
		if size > limit {
			t.Errorf("%d bytes came through", size)
		}
		if errors.Is(err, abi.TooLarge) {
			t.Error("too large without an error")
		}
	})
}
