package wasmbin_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// seeds adds the kernels and every tenth small specification test.
func seeds(f *testing.F) {
	f.Helper()
	for _, k := range wasmbin.Kernels() {
		f.Add(k.Wasm)
	}
	for _, k := range wasmbin.Recursions() {
		f.Add(k.Wasm)
	}
	for i, path := range specFiles(f, filepath.Join("v2", "testdata", "*.wasm")) {
		if wasm := read(f, path); i%10 == 0 && len(wasm) < 4<<10 {
			f.Add(wasm)
		}
	}
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			var malformed *wasmbin.MalformedError
			if errors.As(err, &malformed) && (malformed.Offset < 0 || malformed.Offset > len(wasm)) {
				t.Fatalf("offset %d of %d bytes", malformed.Offset, len(wasm))
			}
			return
		}
		encoded := m.Encode()
		if len(encoded) > len(wasm) {
			t.Fatalf("%d bytes became %d", len(wasm), len(encoded))
		}
		again, err := wasmbin.Decode(encoded)
		if err != nil {
			t.Fatalf("the encoding is malformed: %v", err)
		}
		if !bytes.Equal(again.Encode(), encoded) {
			t.Fatal("the encoding changes when it is repeated")
		}
	})
}

func FuzzMeter(f *testing.F) {
	seeds(f)
	validate := validator(f)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			return
		}
		m.Customs = nil // wazero fails on some that are malformed or empty
		plain := m.Encode()
		err = wasmbin.Meter(m, wasmbin.MeterOptions{})
		if errors.Is(err, wasmbin.ErrTooLarge) || errors.Is(err, wasmbin.ErrReserved) {
			return // validating may take as long as it likes
		}
		before := validate(plain)
		if err != nil {
			if before == nil {
				t.Fatalf("a valid module: %v", err)
			}
			return
		}
		if after := validate(m.Encode()); (before == nil) != (after == nil) {
			t.Fatalf("valid before: %v, after: %v", before, after)
		}
	})
}

// FuzzExpose exposes modules as they are and metered ones.
func FuzzExpose(f *testing.F) {
	seeds(f)
	validate := validator(f)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		for _, metered := range []bool{false, true} {
			m, err := wasmbin.Decode(wasm)
			if err != nil {
				return
			}
			m.Customs = nil // wazero fails on some that are malformed or empty
			if metered && wasmbin.Meter(m, wasmbin.MeterOptions{}) != nil {
				return
			}
			checkExposed(t, m, validate)
		}
	})
}

func checkExposed(t *testing.T, m *wasmbin.Module, validate func([]byte) error) {
	t.Helper()
	plain := m.Encode()
	err := wasmbin.Expose(m)
	if err != nil && !bytes.Equal(m.Encode(), plain) {
		t.Fatal("it was changed and refused")
	}
	if errors.Is(err, wasmbin.ErrHidden) || errors.Is(err, wasmbin.ErrReserved) {
		return
	}
	before := validate(plain)
	if err != nil {
		if before == nil {
			t.Fatalf("a valid module: %v", err)
		}
		return
	}
	if after := validate(m.Encode()); (before == nil) != (after == nil) {
		t.Fatalf("valid before: %v, after: %v", before, after)
	}
	if _, ok := wasmbin.ImageOf(m.Encode()); !ok {
		t.Fatal("there is no image")
	}
}
