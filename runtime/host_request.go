package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// The functions of ABI.md, sections 7.1 to 7.4.

func hostABI(_ *exchange, a []uint64) (int32, error) {
	switch uint32(a[0]) {
	case abi.FeatureMinor:
		return abi.Minor, nil
	case abi.FeatureFetch, abi.FeatureBreaker, abi.FeatureLease, abi.FeatureState, abi.FeatureTrailers:
		return 1, nil
	}
	return 0, nil
}

func hostError(x *exchange, a []uint64) (int32, error) {
	return x.inst.memory.answer(uint32(a[0]), uint32(a[1]), abi.AppendFailure(nil, x.failure))
}

func hostStatus(x *exchange, a []uint64) (int32, error) {
	record, err := x.inst.memory.record(uint32(a[0]), abi.StatusSize)
	if err != nil {
		return 0, err
	}
	remaining := time.Until(x.deadline)
	late := remaining + x.inst.function.cfg.MaxLateSettlement
	putWords(record, uint64(remaining), uint64(late), uint64(x.inst.meter.left()), uint64(x.flags.Load()))
	return 0, nil
}

func hostLog(x *exchange, a []uint64) (int32, error) {
	level, p, n := int32(uint32(a[0])), uint32(a[1]), uint32(a[2])
	if _, err := x.inst.memory.view(p, n); err != nil {
		return 0, err
	}
	text, err := x.inst.memory.text(p, min(n, abi.MaxLogLine), abi.MaxLogLine)
	if err != nil {
		return 0, err
	}
	x.log(slog.Level(level), strings.ToValidUTF8(text, "\uFFFD"))
	return 0, nil
}

func hostConfig(x *exchange, a []uint64) (int32, error) {
	name, err := x.inst.memory.name(uint32(a[1]), uint32(a[2]))
	if err != nil {
		return 0, err
	}
	var values map[string]string
	switch uint32(a[0]) {
	case abi.ConfigEnv:
		values = x.inst.function.cfg.Env
	case abi.ConfigSecret:
		values = x.inst.function.cfg.Secrets
	default:
		return 0, abi.Unsupported
	}
	value, ok := values[name]
	if !ok {
		return 0, abi.NotFound
	}
	return x.inst.memory.answer(uint32(a[3]), uint32(a[4]), []byte(value))
}

func hostWait(x *exchange, a []uint64) (int32, error) {
	p, n, timeout := uint32(a[0]), uint32(a[1]), time.Duration(a[2])
	switch {
	case n%abi.WaitSize != 0:
		return 0, abi.Invalid
	case n > abi.MaxHandles*abi.WaitSize:
		return 0, abi.TooLarge
	}
	records, err := x.inst.memory.view(p, n)
	if err != nil {
		return 0, err
	}
	if timeout < 0 {
		timeout = math.MaxInt64
	}
	var ready [abi.MaxHandles]uint32
	count, err := x.waitFor(records, ready[:], timeout)
	if err != nil {
		return 0, err
	}
	for i := range len(records) / abi.WaitSize {
		binary.LittleEndian.PutUint32(records[i*abi.WaitSize+8:], ready[i])
	}
	return count, nil
}

// waitFor returns how many handles are ready, after waiting for the first one.
func (x *exchange) waitFor(records []byte, ready []uint32, timeout time.Duration) (int32, error) {
	until := time.Now().Add(timeout)
	for {
		count, err := x.poll(records, ready)
		if count > 0 || err != nil {
			return count, err
		}
		left := time.Until(until)
		if timeout < math.MaxInt64 && left <= 0 {
			return 0, nil
		}
		if err := x.interrupted(); err != nil {
			return 0, err
		}
		x.sleep(left)
	}
}

func (x *exchange) poll(records []byte, ready []uint32) (count int32, err error) {
	for i := range len(records) / abi.WaitSize {
		record := records[i*abi.WaitSize:]
		interest := binary.LittleEndian.Uint32(record[4:])
		if interest&^(abi.WaitRead|abi.WaitWrite) != 0 {
			return 0, abi.Unsupported
		}
		h, err := x.lookup(binary.LittleEndian.Uint32(record))
		if err != nil {
			return 0, err
		}
		if interest == 0 {
			return 0, abi.Invalid
		}
		if ready[i], err = h.ready(interest); err != nil {
			return 0, err
		}
		if ready[i] != 0 {
			count++
		}
	}
	return count, nil
}

func hostRequestHead(x *exchange, a []uint64) (int32, error) {
	head, err := x.requestHead()
	if err != nil {
		return 0, err
	}
	return x.inst.memory.answer(uint32(a[0]), uint32(a[1]), head)
}

// guestRecord returns the view of a record that a guest passes.
func guestRecord(x *exchange, p, n uint64) ([]byte, error) {
	if uint32(n) > abi.MaxHead {
		return nil, errRecordSize
	}
	return x.inst.memory.view(uint32(p), uint32(n))
}

var errRecordSize = fmt.Errorf("record is larger than %d bytes: %w", abi.MaxHead, abi.TooLarge)

func hostResponseHead(x *exchange, a []uint64) (int32, error) {
	record, err := guestRecord(x, a[1], a[2])
	if err != nil {
		return 0, err
	}
	if _, err := noBlock(a[3]); err != nil {
		return 0, err
	}
	return 0, x.response.head(int(uint32(a[0])), record)
}

func hostResponseFail(x *exchange, a []uint64) (int32, error) {
	code, retry := abi.Code(int32(uint32(a[0]))), int32(uint32(a[1]))
	if !code.Valid() || retry < 0 {
		return 0, abi.Invalid
	}
	p, n := uint32(a[2]), uint32(a[3])
	if _, err := x.inst.memory.view(p, n); err != nil {
		return 0, err
	}
	text, err := x.inst.memory.text(p, min(n, abi.MaxLogLine), abi.MaxLogLine)
	if err != nil {
		return 0, err
	}
	return 0, x.response.fail(failedAnswer{code, time.Duration(retry) * time.Millisecond, text})
}

func hostRead(x *exchange, a []uint64) (int32, error) {
	h, err := find[source](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	dst, err := x.inst.memory.view(uint32(a[1]), uint32(a[2]))
	if err != nil {
		return 0, err
	}
	now, err := noBlock(a[3])
	if err != nil {
		return 0, err
	}
	if len(dst) == 0 {
		return 0, abi.Invalid
	}
	n, err := h.read(dst, now)
	if errors.Is(err, io.EOF) {
		return 0, nil
	}
	return int32(n), err
}

func hostWrite(x *exchange, a []uint64) (int32, error) {
	h, err := find[sink](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	src, err := x.inst.memory.view(uint32(a[1]), uint32(a[2]))
	if err != nil {
		return 0, err
	}
	now, err := noBlock(a[3])
	if err != nil {
		return 0, err
	}
	n, err := h.write(src, now)
	return int32(n), err
}

func hostFlush(x *exchange, a []uint64) (int32, error) {
	h, err := find[sink](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	return 0, h.flush()
}

func hostFinish(x *exchange, a []uint64) (int32, error) {
	h, err := find[sink](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	record, err := guestRecord(x, a[1], a[2])
	if err != nil {
		return 0, err
	}
	return 0, h.finish(record)
}

func hostTrailers(x *exchange, a []uint64) (int32, error) {
	h, err := find[source](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	trailers, err := h.trailers()
	if err != nil {
		return 0, err
	}
	return x.inst.memory.answer(uint32(a[1]), uint32(a[2]), appendHeader(nil, trailers))
}

func hostClose(x *exchange, a []uint64) (int32, error) {
	number := uint32(a[0])
	h, err := x.lookup(number)
	if err != nil {
		return 0, err
	}
	x.forget(number)
	h.drop()
	return 0, nil
}
