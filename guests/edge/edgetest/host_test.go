//go:build !wasip1

package edgetest

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// TestHostFunctions makes calls that the SDK never makes, and wants the codes of
// ABI.md.
func TestHostFunctions(t *testing.T) {
	t.Parallel()
	text := func(tag abi.Tag, value string) []byte { return abi.AppendText(nil, tag, value) }
	get := abi.AppendText(text(abi.FieldMethod, "GET"), abi.FieldTarget, "/")
	room := make([]byte, 64)
	var revision uint64
	tests := []struct {
		name string
		call func(f host.Functions) int32
		want abi.Code
	}{
		{"an undefined flag", func(f host.Functions) int32 { return f.Read(1, room, 2) }, abi.Unsupported},
		{"a read without room", func(f host.Functions) int32 { return f.Read(1, nil, 0) }, abi.Invalid},
		{"reading the response", func(f host.Functions) int32 { return f.Read(2, room, 0) }, abi.Invalid},
		{"writing the request", func(f host.Functions) int32 { return f.Write(1, room, 0) }, abi.Invalid},
		{"a handle that never was", func(f host.Functions) int32 { return f.Read(9, room, 0) }, abi.NotFound},
		{"closing a handle that never was", func(f host.Functions) int32 { return f.Close(9) }, abi.NotFound},
		{"a write before the head", func(f host.Functions) int32 { return f.Write(2, room, 0) }, abi.Conflict},
		{"a flush before the head", func(f host.Functions) int32 { return f.Flush(2) }, abi.Conflict},
		{"a finish before the head", func(f host.Functions) int32 { return f.Finish(2, nil) }, abi.Conflict},
		{"a second head", func(f host.Functions) int32 { f.ResponseHead(200, nil, 0); return f.ResponseHead(200, nil, 0) }, abi.Conflict},
		{"a write after the end", func(f host.Functions) int32 {
			f.ResponseHead(200, nil, 0)
			f.Finish(2, nil)
			return f.Write(2, room, 0)
		}, abi.Conflict},
		{"more than the Content-Length", func(f host.Functions) int32 {
			f.ResponseHead(200, abi.AppendPair(nil, abi.FieldHeader, "Content-Length", "3"), 0)
			return f.Write(2, room, 0)
		}, abi.Invalid},
		{"a Content-Length that is none", func(f host.Functions) int32 {
			return f.ResponseHead(200, abi.AppendPair(nil, abi.FieldHeader, "Content-Length", "x"), 0)
		}, abi.Invalid},
		{"a switch of protocols", func(f host.Functions) int32 { return f.ResponseHead(101, nil, 0) }, abi.Invalid},
		{"a field out of place", func(f host.Functions) int32 { return f.ResponseHead(200, text(abi.FieldMethod, "GET"), 0) }, abi.Unsupported},
		{"an unknown field that is optional", func(f host.Functions) int32 {
			return f.ResponseHead(200, text(abi.TagOptional|900, ""), 0)
		}, 0},
		{"a record cut short", func(f host.Functions) int32 { return f.ResponseHead(200, get[:5], 0) }, abi.Invalid},
		{"an answer for no code", func(f host.Functions) int32 { return f.ResponseFail(0, 0, "") }, abi.Invalid},
		{"a retry time in the past", func(f host.Functions) int32 { return f.ResponseFail(-1, -1, "") }, abi.Invalid},
		{"a second answer for a code", func(f host.Functions) int32 { f.ResponseFail(-1, 0, ""); return f.ResponseFail(-1, 0, "") }, abi.Conflict},
		{"an undefined kind of configuration", func(f host.Functions) int32 { return f.Config(7, "x", room) }, abi.Unsupported},
		{"an undefined body mode", func(f host.Functions) int32 { return f.Fetch("d", get, 3, 0) }, abi.Unsupported},
		{"an inline body that is not there", func(f host.Functions) int32 { return f.Fetch("d", get, abi.BodyInline, 0) }, abi.Invalid},
		{"a call without a method", func(f host.Functions) int32 { return f.Fetch("d", get[len(text(abi.FieldMethod, "GET")):], 0, 0) }, abi.Invalid},
		{"a field twice", func(f host.Functions) int32 { return f.Fetch("d", slices.Concat(get, get), 0, 0) }, abi.Invalid},
		{"a lease that never was", func(f host.Functions) int32 {
			return f.Fetch("d", abi.AppendNumber(slices.Clone(get), abi.FieldLease, 8), 0, 0)
		}, abi.NotFound},
		{"writing to a call without a streamed body", func(f host.Functions) int32 { return f.Write(f.Fetch("d", get, 0, 0), room, 0) }, abi.Invalid},
		{"trailers of a call", func(f host.Functions) int32 {
			return f.Finish(f.Fetch("d", get, abi.BodyStream, 0), abi.AppendPair(nil, abi.FieldHeader, "X-Sum", "9"))
		}, abi.Unsupported},
		{"admission without waiting", func(f host.Functions) int32 { return f.Admit("d", abi.FlagNoBlock) }, abi.Unsupported},
		{"an undefined outcome", func(f host.Functions) int32 { return f.Report(f.Admit("d", 0), 4) }, abi.Unsupported},
		{"a lease of infinite length", func(f host.Functions) int32 {
			return f.LeaseAcquire("o", "", abi.AppendNumber(nil, abi.FieldTTL, 1<<63))
		}, abi.Invalid},
		{"the function's lease where there is none", func(f host.Functions) int32 { return f.LeaseRelease(3, 0) }, abi.NotFound},
		{"releasing what was not granted", func(f host.Functions) int32 {
			f.LeaseAcquire("o", "", nil)
			return f.LeaseRelease(f.LeaseAcquire("o", "", nil), 0)
		}, 0},
		{"a put under a lease without a get", func(f host.Functions) int32 {
			return f.StatePut("o", "k", 0, f.LeaseAcquire("o", "", nil), nil, &revision)
		}, abi.Fenced},
		{"more handles than may be open", func(f host.Functions) int32 {
			for range abi.MaxHandles - abi.HandleFunctionLease {
				f.Admit("d", 0)
			}
			return f.Admit("d", 0)
		}, abi.Overloaded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := New(t)
			h.Dependency("d", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			h.AllowObjects("o")
			h.Run(func() {
				f := host.Current()
				if got := test.call(f); abi.Code(got) != test.want {
					t.Fatalf("got %d %v, want %v", got, abi.Code(got), test.want)
				}
				record := make([]byte, f.Error(nil))
				f.Error(record)
				if failure, err := abi.ParseFailure(record); err != nil || failure.Code != test.want {
					t.Errorf("the error function says %+v, %v", failure, err)
				}
			})
		})
	}
}

// TestShortBuffers reads values with less and less room.
func TestShortBuffers(t *testing.T) {
	t.Parallel()
	h := New(t)
	h.SetEnv("NAME", "value")
	h.Run(func() {
		f := host.Current()
		for room := range 7 {
			p := make([]byte, room)
			n := f.Config(abi.ConfigEnv, "NAME", p)
			want := make([]byte, room)
			if room >= len("value") {
				copy(want, "value")
			}
			if diff := cmp.Diff(want, p); n != 5 || diff != "" {
				t.Errorf("room for %d: length %d (-want +got):\n%s", room, n, diff)
			}
		}
	})
}
