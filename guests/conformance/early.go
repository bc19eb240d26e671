package conformance

import (
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
)

// earlyAt is where the results of the early calls are kept until there is a
// request.
const earlyAt = 8192

// An earlyCall is a host call made by _initialize, with all arguments zero but
// those given.
type earlyCall struct {
	name      string
	arguments []int32
	want      int32
}

// earlyCalls are every function that works without a request, and some that do
// not.
func earlyCalls() []earlyCall {
	const greeting = int32(len("GREETING"))
	conflict := int32(abi.Conflict)
	return []earlyCall{
		{"abi", []int32{abi.FeatureFetch}, 1},
		{"log", []int32{abi.LogInfo, bodyAt, greeting}, 0},
		{"config", []int32{abi.ConfigEnv, bodyAt, greeting}, int32(len("hi"))},
		{"request_head", nil, conflict},
		{"response_head", []int32{http.StatusOK}, conflict},
		{"read", []int32{abi.HandleRequestBody, bodyAt, 1}, conflict},
		{"status", []int32{cellAt}, conflict},
		{"fetch", nil, conflict},
		{"admit", []int32{bodyAt, greeting}, conflict},
		{"close", []int32{abi.HandleRequestBody}, conflict},
		{"error", nil, abi.ErrorSize}, // and its text
	}
}

// earlyBird assembles a guest that makes the early calls in _initialize and
// answers with their results.
func earlyBird() []byte {
	m := &module{}
	calls := earlyCalls()
	var initialize []byte
	for i, c := range calls {
		index := m.host(c.name)
		var arguments []byte
		for j, kind := range parameters(c.name) {
			value := int32(0)
			if j < len(c.arguments) {
				value = c.arguments[j]
			}
			if kind == abi.I64 {
				arguments = append(arguments, i64c(int64(value))...)
			} else {
				arguments = append(arguments, i32c(value)...)
			}
		}
		initialize = append(initialize, i32c(int32(earlyAt+4*i))...)
		initialize = append(initialize, call(index, arguments)...)
		initialize = append(initialize, access(opI32Store, 0)...)
	}
	head, write := m.host("response_head"), m.host("write")
	m.bytes(bodyAt, []byte("GREETING"))
	m.export(abi.ExportInit, m.function(signature{}, nil, initialize))
	return m.handled(
		run(head, i32c(http.StatusOK), i32c(0), i32c(0), i32c(0)),
		run(write, i32c(abi.HandleResponseBody), i32c(earlyAt), i32c(int32(4*len(calls))), i32c(0)),
		i32c(abi.HandleDone))
}

func parameters(name string) []abi.Type {
	for _, f := range abi.Functions() {
		if f.Name == name {
			return f.Params
		}
	}
	return nil
}

func (k *kit) checkEarly(t *testing.T, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/early/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) != 4*len(earlyCalls()) {
		t.Fatalf("status %d, body %q, %v", resp.StatusCode, body, err)
	}
	for i, c := range earlyCalls() {
		got := int32(binary.LittleEndian.Uint32(body[4*i:]))
		if c.name == "error" && got >= abi.ErrorSize {
			continue
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, described(got), described(c.want))
		}
	}
}
