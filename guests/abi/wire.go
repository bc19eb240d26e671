package abi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Tag names a field of a record. A receiver ignores a tag from the host that
// it does not know, and answers Unsupported to one from a guest, unless its
// TagOptional bit is set.
type Tag uint16

// The tags. Numbers are append-only.
const (
	FieldMethod        Tag = 1  // text
	FieldTarget        Tag = 2  // text: path and query; an absolute URL in a plain fetch
	FieldProtocol      Tag = 3  // text, such as "HTTP/1.1"
	FieldRemote        Tag = 4  // text: the client's address and port
	FieldHost          Tag = 5  // text: the authority that the client asked for
	FieldScheme        Tag = 6  // text: "http" or "https"
	FieldHeader        Tag = 7  // pair: one header value; repeated for repeated headers
	FieldPathValue     Tag = 8  // pair: a wildcard of the route and what it matched
	FieldRequestID     Tag = 9  // text
	FieldRoute         Tag = 10 // text: the pattern that matched
	FieldContentLength Tag = 11 // number; absent when unknown
	FieldBody          Tag = 12 // bytes: an inline body
	FieldTimeout       Tag = 13 // number: nanoseconds
	FieldLease         Tag = 14 // number: the handle of the lease to call under
	FieldStatus        Tag = 15 // number: an HTTP status
	FieldTTL           Tag = 16 // number: nanoseconds
	FieldWait          Tag = 17 // number: nanoseconds
	FieldRenewEvery    Tag = 18 // number: nanoseconds

	TagOptional Tag = 0x8000
)

// A record is a run of fields: tag u16, length u32, then length bytes, all
// little-endian and unaligned. A pair is a name's length as u16, the name, the
// value. A number is a u64.
const (
	fieldHeader = 6
	pairHeader  = 2
)

// ErrRecord is the parent of every parse failure; it unwraps to Invalid.
var ErrRecord = fmt.Errorf("abi: malformed record: %w", Invalid)

var (
	errTruncated = fmt.Errorf("%w: a field is longer than the record", ErrRecord)
	errPair      = fmt.Errorf("%w: a pair is shorter than its name", ErrRecord)
	errNumber    = fmt.Errorf("%w: a number is not 8 bytes", ErrRecord)
)

// AppendText appends a text or bytes field.
func AppendText[T string | []byte](b []byte, tag Tag, value T) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(tag))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// AppendPair appends a pair field. Names beyond 65,535 bytes are cut off there;
// callers have refused them long before.
func AppendPair(b []byte, tag Tag, name, value string) []byte {
	if len(name) > 1<<16-1 {
		name = name[:1<<16-1]
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(tag))
	b = binary.LittleEndian.AppendUint32(b, uint32(pairHeader+len(name)+len(value)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = append(b, name...)
	return append(b, value...)
}

// AppendNumber appends a number field.
func AppendNumber(b []byte, tag Tag, n uint64) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(tag))
	b = binary.LittleEndian.AppendUint32(b, 8)
	return binary.LittleEndian.AppendUint64(b, n)
}

// A Field is one field of a record. Value aliases the record.
type Field struct {
	Tag   Tag
	Value []byte
}

// Next splits the first field off a record. An empty record gives no field and
// no error: loop while len(record) > 0.
func Next(record []byte) (Field, []byte, error) {
	if len(record) == 0 {
		return Field{}, nil, nil
	}
	if len(record) < fieldHeader {
		return Field{}, nil, errTruncated
	}
	tag := Tag(binary.LittleEndian.Uint16(record))
	size := binary.LittleEndian.Uint32(record[2:])
	rest := record[fieldHeader:]
	if uint64(size) > uint64(len(rest)) {
		return Field{}, nil, errTruncated
	}
	return Field{tag, rest[:size:size]}, rest[size:], nil
}

// Pair splits the value of a pair field. Both results alias the record.
func (f Field) Pair() (name, value []byte, err error) {
	if len(f.Value) < pairHeader {
		return nil, nil, errPair
	}
	size := int(binary.LittleEndian.Uint16(f.Value))
	if rest := f.Value[pairHeader:]; size <= len(rest) {
		return rest[:size:size], rest[size:], nil
	}
	return nil, nil, errPair
}

// Number returns the value of a number field.
func (f Field) Number() (uint64, error) {
	if len(f.Value) != 8 {
		return 0, errNumber
	}
	return binary.LittleEndian.Uint64(f.Value), nil
}

// Unknown is what a host answers to a field of a guest that it does not know:
// nil if the field is marked optional, else an error that unwraps to
// Unsupported.
func (f Field) Unknown() error {
	if f.Tag&TagOptional != 0 {
		return nil
	}
	return fmt.Errorf("abi: field %d: %w", f.Tag, Unsupported)
}

// A Failure is what the error function reports of the last host call that
// failed.
type Failure struct {
	Code       Code
	RetryAfter int64  // nanoseconds; zero if there is no advice
	Revision   uint64 // the newest revision known after a Conflict, else zero
	Text       string // for the guest's log, never for a client
}

// AppendFailure appends the record of the error function.
func AppendFailure(b []byte, f Failure) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(f.Code))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.RetryAfter))
	b = binary.LittleEndian.AppendUint64(b, f.Revision)
	return append(b, f.Text...)
}

var errFailure = errors.New("shorter than its fixed part")

// ParseFailure reads the record of the error function.
func ParseFailure(b []byte) (Failure, error) {
	if len(b) < ErrorSize {
		return Failure{}, fmt.Errorf("%w: %w", ErrRecord, errFailure)
	}
	return Failure{
		Code:       Code(int32(binary.LittleEndian.Uint32(b))),
		RetryAfter: int64(binary.LittleEndian.Uint64(b[8:])),
		Revision:   binary.LittleEndian.Uint64(b[16:]),
		Text:       string(b[ErrorSize:]),
	}, nil
}
