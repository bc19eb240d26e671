package wasmbin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// validator compiles without machine code. Wazero panics on some invalid modules,
// which counts as an error.
func validator(tb testing.TB) func([]byte) error {
	tb.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	tb.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return func(wasm []byte) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panicked: %v", r)
			}
		}()
		m, err := rt.CompileModule(ctx, wasm)
		if err == nil {
			err = m.Close(ctx)
		}
		return err
	}
}

// proposals are the folders with tests of features that are off, some of which
// wazero accepts all the same.
var proposals = []string{"typed-function-references", "extended-const", "exception-handling", "tail-call", "threads"}

func TestWhatWazeroAcceptsComesOutTheSame(t *testing.T) {
	t.Parallel()
	validate := validator(t)
	accepted, identical := 0, 0
	for _, path := range specFiles(t, filepath.Join("v[12]", "testdata", "*.wasm")) {
		wasm := read(t, path)
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			if validate(wasm) == nil {
				t.Errorf("%s: wazero accepts it: %v", filepath.Base(path), err)
			}
			continue
		}
		encoded := m.Encode()
		if (validate(wasm) == nil) != (validate(encoded) == nil) {
			t.Errorf("%s: %v before, %v after", filepath.Base(path), validate(wasm), validate(encoded))
		}
		again, err := wasmbin.Decode(encoded)
		if err != nil {
			t.Fatalf("%s: its encoding is malformed: %v", filepath.Base(path), err)
		}
		if !bytes.Equal(again.Encode(), encoded) {
			t.Errorf("%s: the encoding changes when it is repeated", filepath.Base(path))
		}
		accepted++
		switch {
		case bytes.Equal(encoded, wasm):
			identical++
		case len(encoded) >= len(wasm):
			t.Errorf("%s: changed from %d to %d bytes", filepath.Base(path), len(wasm), len(encoded))
		}
	}
	if accepted < 5000 || identical < accepted*9/10 {
		t.Errorf("%d modules decoded, %d identical", accepted, identical)
	}
}

func TestModulesOfProposalsAreRefusedOrComeOutValid(t *testing.T) {
	t.Parallel()
	validate := validator(t)
	for _, proposal := range proposals {
		for _, path := range specFiles(t, filepath.Join(proposal, "testdata", "*.wasm")) {
			wasm := read(t, path)
			m, err := wasmbin.Decode(wasm)
			if err == nil && (validate(wasm) == nil) != (validate(m.Encode()) == nil) {
				t.Errorf("%s: %v before, %v after", path, validate(wasm), validate(m.Encode()))
			}
		}
	}
}

const preamble = "\x00asm\x01\x00\x00\x00"

func TestMalformedModulesAreRefusedWithTheOffset(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wasm string
		offset     int
		where      string
		reason     string
	}{
		{"a section number that does not exist", "\x0d\x00", 8, "module", "section 13 does not exist"},
		{"a section longer than the module", "\x01\x05\x00", 10, "module", "type section: 5 bytes announced, 1 left"},
		{"a section twice", "\x01\x01\x00\x01\x01\x00", 11, "module", "type section after type section"},
		{"sections out of order", "\x03\x01\x00\x01\x01\x00", 11, "module", "type section after function section"},
		{"bytes left in a section", "\x01\x02\x00\x07", 11, "type section", "1 bytes left over"},
		{"a count beyond the section", "\x01\x01\x09", 10, "type section", "number of types: 9 announced, 0 bytes left"},
		{"a type that is no function", "\x01\x02\x01\x5f", 11, "type section", "function type: starts with 0x5f"},
		{"a value type that does not exist", "\x01\x04\x01\x60\x01\x6e", 13, "type section", "value type: 0x6e is none"},
		{"an integer too long", "\x01\x06\x80\x80\x80\x80\x80\x00", 10, "type section", "not an unsigned integer of 32 bits"},
		{"an integer too large", "\x01\x05\xff\xff\xff\xff\x1f", 10, "type section", "not an unsigned integer of 32 bits"},
		{"a name that is not UTF-8", "\x00\x02\x01\xff", 11, "custom section", "name: not UTF-8"},
		{"shared memory", "\x05\x03\x01\x03\x01", 11, "memory section", "limits: form 0x3"},
		{"mutability of 2", "\x06\x06\x01\x7f\x02\x41\x00\x0b", 12, "global section", "mutability: 0x2"},
		{"an element segment of form 8", "\x09\x02\x01\x08", 11, "element section", "form: 8 does not exist"},
		{"a data segment of memory 1", "\x0b\x07\x01\x02\x01\x41\x00\x0b\x00", 11, "data section", "memory 1"},
		{"code without a function", "\x0a\x04\x01\x02\x00\x0b", 10, "code section", "1 functions have code, 0 have a type"},
		{"a function without code", "\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00", 18, "module", "1 functions have a type, none has code"},
		{"data segments that do not match their count", "\x0c\x01\x02", 11, "module", "2 data segments announced, 0 found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkMalformed(t, preamble+c.wasm, c.offset, c.where, c.reason)
		})
	}
}

func TestMalformedInstructionsAreRefusedWithTheOffset(t *testing.T) {
	t.Parallel()
	// The instructions start at offset 23.
	for _, c := range []struct {
		name, code string
		offset     int
		reason     string
	}{
		{"an opcode that does not exist", "\x06\x0b", 23, "instruction 0x6 does not exist"},
		{"a miscellaneous opcode that does not exist", "\xfc\x12\x0b", 23, "instruction 0xfc12 does not exist"},
		{"a vector opcode that does not exist", "\xfd\x9a\x01\x0b", 23, "instruction 0xfd9a does not exist"},
		{"a vector opcode beyond the table", "\xfd\x80\x02\x0b", 23, "instruction 0xfd 0x100 does not exist"},
		{"an else outside of blocks", "\x05\x0b", 23, "else that belongs to no if"},
		{"an else in a loop", "\x03\x40\x05\x0b\x0b", 25, "else that belongs to no if"},
		{"a second else", "\x41\x00\x04\x40\x05\x05\x0b\x0b", 28, "else that belongs to no if"},
		{"a missing end", "\x01", 24, "instruction: unexpected end"},
		{"code after the end", "\x0b\x0b", 24, "1 bytes left over"},
		{"a block type that does not exist", "\x02\x6e\x0b\x0b", 24, "block type: 0x6e is none"},
		{"an i32 that does not fit", "\x41\xff\xff\xff\xff\x0f\x1a\x0b", 24, "i32 constant: not a signed integer of 32 bits"},
		{"an i64 that does not fit", "\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x0b", 24, "i64 constant: not a signed integer of 64 bits"},
		{"half a constant", "\x43\x00\x00", 24, "f32 constant: 4 bytes announced, 2 left"},
		{"another memory", "\x3f\x01\x0b", 24, "memory 1: there is only memory 0"},
		{"a reference to no reference type", "\xd0\x7f\x0b", 24, "reference type: 0x7f is none"},
		{"a label table longer than the code", "\x0e\x7f\x0b", 24, "number of labels: 127 announced, 1 bytes left"},
		{"a data segment without a count", "\xfc\x09\x00\x0b", 23, "without a data count section"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			size := byte(len(c.code) + 1)
			wasm := preamble + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" +
				"\x0a" + string([]byte{size + 2, 1, size, 0}) + c.code
			checkMalformed(t, wasm, c.offset, "", c.reason)
		})
	}
}

func checkMalformed(t *testing.T, wasm string, offset int, where, reason string) {
	t.Helper()
	_, err := wasmbin.Decode([]byte(wasm))
	var malformed *wasmbin.MalformedError
	if !errors.As(err, &malformed) {
		t.Fatalf("got %v", err)
	}
	if malformed.Offset != offset || !strings.HasPrefix(malformed.Where, where) || !strings.Contains(malformed.Reason, reason) {
		t.Errorf("got offset %d, %s: %s\nwant offset %d, %s: %s", malformed.Offset, malformed.Where, malformed.Reason, offset, where, reason)
	}
}

func TestWhatIsNoCoreModuleIsNamed(t *testing.T) {
	t.Parallel()
	for want, wasm := range map[string]string{
		"empty":                       "",
		"text format":                 "\n (module)",
		"does not start with":         "\x7fELF",
		"ends after 5 bytes":          "\x00asm\x01",
		"component":                   "\x00asm\x0d\x00\x01\x00",
		"version 0x02000000 is not 1": "\x00asm\x02\x00\x00\x00",
	} {
		_, err := wasmbin.Decode([]byte(wasm))
		if !errors.Is(err, wasmbin.ErrNotCore) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", wasm, err, want)
		}
	}
}

func TestEncodingIsTheShortest(t *testing.T) {
	t.Parallel()
	// A type section padded to five bytes of size, an empty import section, and
	// code with a padded constant and a padded opcode.
	padded := preamble + "\x01\x85\x80\x80\x80\x00\x01\x60\x00\x01\x7f" + "\x02\x01\x00" +
		"\x03\x02\x01\x00" + "\x0a\x0a\x01\x08\x00\x41\x81\x80\x00\xc0\x01\x0b"
	short := preamble + "\x01\x05\x01\x60\x00\x01\x7f" +
		"\x03\x02\x01\x00" + "\x0a\x08\x01\x06\x00\x41\x01\xc0\x01\x0b"
	m, err := wasmbin.Decode([]byte(padded))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Encode()); got != short {
		t.Errorf("got %x\nwant %x", got, short)
	}
}
