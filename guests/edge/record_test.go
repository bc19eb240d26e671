package edge

import (
	"slices"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
)

// TestMalformedRecords reads what no host should send.
func TestMalformedRecords(t *testing.T) {
	t.Parallel()
	pair := abi.AppendPair(nil, abi.FieldHeader, "Name", "value")
	longName := slices.Clone(pair)
	longName[6] = 10 // one more than the name and the value have
	tests := []struct {
		name   string
		record []byte
		want   []string
	}{
		{"nothing", nil, nil},
		{"a pair", pair, []string{"Name", "value"}},
		{"a field without its length", slices.Concat(pair, pair[:5]), []string{"Name", "value"}},
		{"a field longer than the record", slices.Concat(pair, pair[:len(pair)-1]), []string{"Name", "value"}},
		{"a pair shorter than its name", slices.Concat(longName, pair), []string{"Name", "value"}},
		{"a pair without a name", slices.Concat(abi.AppendText(nil, abi.FieldHeader, "x"), pair), []string{"Name", "value"}},
		{"a number that is none", slices.Concat(abi.AppendText(nil, abi.FieldContentLength, "four"), pair), []string{"Name", "value"}},
		{"a length above 2^63", slices.Concat(abi.AppendNumber(nil, abi.FieldContentLength, 1<<63), pair), []string{"Name", "value"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := record{bytes: test.record}
			var h Header
			h.decode(&r)
			var got []string
			for name, value := range h.All() {
				got = append(got, name, value)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("headers %q", got)
			}
			if n := r.number(abi.FieldContentLength, -1); n != -1 {
				t.Errorf("length %d", n)
			}
		})
	}
}
