package abi_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
)

// fields splits a record into its fields.
func fields(record []byte) ([]abi.Field, error) {
	var all []abi.Field
	for len(record) > 0 {
		f, rest, err := abi.Next(record)
		if err != nil {
			return all, err
		}
		all, record = append(all, f), rest
	}
	return all, nil
}

func TestFieldsComeBackAsTheyWereAppended(t *testing.T) {
	record := abi.AppendText(nil, abi.FieldMethod, "GET")
	record = abi.AppendText(record, abi.FieldBody, []byte{0, 1, 255})
	record = abi.AppendPair(record, abi.FieldHeader, "Accept", "")
	record = abi.AppendPair(record, abi.FieldPathValue, "", "7")
	record = abi.AppendNumber(record, abi.FieldTimeout, math.MaxUint64)
	record = abi.AppendText(record, abi.FieldTarget, "")

	got, err := fields(record)
	if err != nil {
		t.Fatal(err)
	}
	want := []abi.Field{
		{abi.FieldMethod, []byte("GET")},
		{abi.FieldBody, []byte{0, 1, 255}},
		{abi.FieldHeader, []byte("\x06\x00Accept")},
		{abi.FieldPathValue, []byte("\x00\x007")},
		{abi.FieldTimeout, bytes.Repeat([]byte{255}, 8)},
		{abi.FieldTarget, []byte{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	name, value, err := got[2].Pair()
	if string(name) != "Accept" || string(value) != "" || err != nil {
		t.Errorf("pair %q %q, %v", name, value, err)
	}
	if n, err := got[4].Number(); n != math.MaxUint64 || err != nil {
		t.Errorf("number %d, %v", n, err)
	}
}

func TestMalformedRecordsAreInvalid(t *testing.T) {
	whole := abi.AppendText(nil, abi.FieldMethod, "GET")
	cases := []struct {
		name   string
		record string
	}{
		{"a tag alone", "\x01\x00"},
		{"a length cut off", "\x01\x00\x00\x00\x00"},
		{"a value cut off", string(whole[:len(whole)-1])},
		{"a length beyond everything", "\x01\x00\xff\xff\xff\xffGET"},
		{"rubbish behind a field", string(whole) + "\x01"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := fields([]byte(c.record))
			if !errors.Is(err, abi.ErrRecord) || !errors.Is(err, abi.Invalid) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestMalformedValuesAreInvalid(t *testing.T) {
	number := func(f abi.Field) error { _, err := f.Number(); return err }
	pair := func(f abi.Field) error { _, _, err := f.Pair(); return err }
	cases := []struct {
		name  string
		value string
		parse func(abi.Field) error
	}{
		{"an empty number", "", number},
		{"a number of seven bytes", "1234567", number},
		{"a number of nine bytes", "123456789", number},
		{"an empty pair", "", pair},
		{"half a length", "\x01", pair},
		{"a name beyond the field", "\x03\x00ab", pair},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.parse(abi.Field{Value: []byte(c.value)}); !errors.Is(err, abi.ErrRecord) || !errors.Is(err, abi.Invalid) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestValuesCannotGrowIntoTheNextField(t *testing.T) {
	record := abi.AppendPair(nil, abi.FieldHeader, "a", "b")
	record = abi.AppendText(record, abi.FieldMethod, "GET")
	kept := bytes.Clone(record)
	f, _, err := abi.Next(record)
	if err != nil {
		t.Fatal(err)
	}
	name, value, err := f.Pair()
	if err != nil {
		t.Fatal(err)
	}
	_ = append(f.Value, "overwritten"...)
	_ = append(name, "overwritten"...)
	_ = append(value, "overwritten"...)
	if !bytes.Equal(record, kept) {
		t.Errorf("appending to a value changed the record to %q", record)
	}
}

func TestNamesOfPairsAreCutWhereTheirLengthEnds(t *testing.T) {
	record := abi.AppendPair(nil, abi.FieldHeader, strings.Repeat("n", 1<<16), "v")
	f, rest, err := abi.Next(record)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%d bytes left, %v", len(rest), err)
	}
	name, value, err := f.Pair()
	if len(name) != 1<<16-1 || string(value) != "v" || err != nil {
		t.Errorf("name of %d bytes, value %q, %v", len(name), value, err)
	}
}

func TestUnknownFieldsAreUnsupportedUnlessOptional(t *testing.T) {
	if err := (abi.Field{Tag: 999}).Unknown(); !errors.Is(err, abi.Unsupported) {
		t.Errorf("a required field: %v", err)
	}
	if err := (abi.Field{Tag: 999 | abi.TagOptional}).Unknown(); err != nil {
		t.Errorf("an optional field: %v", err)
	}
}

func TestFailuresComeBackAsTheyWereAppended(t *testing.T) {
	for _, want := range []abi.Failure{
		{},
		{Code: abi.LeaseBusy, RetryAfter: 2e9, Text: "held"},
		{Code: abi.Conflict, Revision: math.MaxUint64},
	} {
		got, err := abi.ParseFailure(abi.AppendFailure(nil, want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	short := make([]byte, abi.ErrorSize-1)
	if _, err := abi.ParseFailure(short); !errors.Is(err, abi.Invalid) {
		t.Errorf("a short record: %v", err)
	}
}

func TestParsingAndAppendingDoNotAllocate(t *testing.T) {
	record := make([]byte, 0, 256)
	allocations := testing.AllocsPerRun(100, func() {
		record = abi.AppendText(record[:0], abi.FieldMethod, "GET")
		record = abi.AppendPair(record, abi.FieldHeader, "Accept", "*/*")
		record = abi.AppendNumber(record, abi.FieldTimeout, 1)
		for rest := record; len(rest) > 0; {
			f, next, err := abi.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			_, _, _ = f.Pair()
			_, _ = f.Number()
			rest = next
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// Whatever the bytes: parsing ends, stays inside of them, and what it found
// encodes to what it was parsed from.
func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	f.Add(abi.AppendText(nil, abi.FieldMethod, "GET"))
	f.Add(abi.AppendPair(abi.AppendNumber(nil, abi.FieldTTL, 1), abi.FieldHeader, "a", "b"))
	f.Add([]byte("\x01\x00\xff\xff\xff\xff"))
	f.Add([]byte("\x07\x00\x02\x00\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, record []byte) {
		found, err := fields(record)
		var again []byte
		for _, field := range found {
			again = abi.AppendText(again, field.Tag, field.Value)
		}
		if err == nil && !bytes.Equal(again, record) || err != nil && !bytes.HasPrefix(record, again) {
			t.Errorf("% x was parsed as % x", record, again)
		}
		if err != nil && !errors.Is(err, abi.Invalid) {
			t.Errorf("error %v", err)
		}
	})
}

func FuzzPair(f *testing.F) {
	f.Add([]byte("\x01\x00ab"))
	f.Add([]byte("\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, value, err := abi.Field{Tag: abi.FieldHeader, Value: b}.Pair()
		if err != nil {
			return
		}
		record := abi.AppendPair(nil, abi.FieldHeader, string(name), string(value))
		if got, _, _ := abi.Next(record); !bytes.Equal(got.Value, b) {
			t.Errorf("% x was parsed as %q, %q", b, name, value)
		}
	})
}

func FuzzParseFailure(f *testing.F) {
	f.Add(abi.AppendFailure(nil, abi.Failure{Code: abi.Conflict, Revision: 7, Text: "changed"}))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		failure, err := abi.ParseFailure(b)
		if err != nil {
			return
		}
		again := abi.AppendFailure(nil, failure)
		clear(b[4:8]) // reserved
		if !bytes.Equal(again, b) {
			t.Errorf("% x was parsed as % x", b, again)
		}
	})
}
