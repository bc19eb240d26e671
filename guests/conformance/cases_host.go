package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

func hostCases() []testCase {
	return []testCase{
		{rule: "7.1", name: "abi tells version and features", script: func(s *script) {
			s.call("abi", abi.FeatureMinor).atLeast(s, abi.Minor)
			for _, feature := range []int{abi.FeatureFetch, abi.FeatureBreaker, abi.FeatureLease, abi.FeatureState, abi.FeatureTrailers} {
				s.call("abi", feature).gives(s, 1)
			}
			s.call("abi", 1000).gives(s, 0)
			s.call("abi", -1).gives(s, 0)
		}},
		{rule: "7.1", name: "before any failure error tells code zero", script: func(s *script) {
			out := s.buffer(64)
			n := s.call("error", out).gives(s, abi.ErrorSize)
			s.failure(out, n, func(f abi.Failure) bool { return f == abi.Failure{} }, "nothing")
		}},
		{rule: "7.1", name: "error tells the last failure and never its own", script: func(s *script) {
			out := s.buffer(512)
			s.call("read", abi.HandleRequestBody, 0, 0, 0).fails(s, abi.Invalid)
			s.call("close", noSuchHandle).fails(s, abi.NotFound)
			s.call("error", beyond(512)).fails(s, abi.Invalid)
			s.call("abi", 0) // a success does not clear it
			n := s.call("error", out).atLeast(s, abi.ErrorSize)
			s.failure(out, n, func(f abi.Failure) bool { return f.Code == abi.NotFound }, "not_found")
		}},
		{rule: "7.1", name: "status tells the time that is left", script: func(s *script) {
			out := s.cell(abi.StatusSize)
			s.call("status", out).gives(s, 0)
			within := func(ns uint64) bool { return ns > 0 && ns <= uint64(guestTimeout) }
			s.word(out, 0, within, "a part of the function's timeout")
			s.word(out, 8, func(ns uint64) bool { return int64(ns) > 0 }, "some time")
			s.word(out, 24, func(flags uint64) bool { return flags == 0 }, "no flag, and zero")
			s.checks = append(s.checks, func(m image) error {
				b := m.bytes(span(out))
				remaining, late := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
				if int64(late) < int64(remaining) {
					return fmt.Errorf("late_ns %d is less than remaining_ns %d", late, remaining)
				}
				return nil
			})
		}},
		{rule: "7.1", name: "log takes any level and cuts long lines", script: func(s *script) {
			for _, level := range []int{abi.LogDebug, abi.LogInfo, abi.LogWarn, abi.LogError, -100, 3} {
				s.call("log", level, s.text("a line \xff\n of the kit")).gives(s, 0)
			}
			s.call("log", abi.LogInfo, s.text(strings.Repeat("long ", abi.MaxLogLine))).gives(s, 0)
		}},
		{rule: "7.1", name: "config reads the environment and secrets, apart", script: func(s *script) {
			out := s.buffer(16)
			s.call("config", abi.ConfigEnv, s.text("GREETING"), out).gives(s, 2)
			s.holds(out, "hi\xaa")
			secret := s.buffer(16)
			s.call("config", abi.ConfigSecret, s.text("KEY"), secret).gives(s, 6)
			s.holds(secret, "s3cret\xaa")
			s.call("config", abi.ConfigEnv, s.text("EMPTY"), s.buffer(4)).gives(s, 0)
			s.call("config", abi.ConfigEnv, s.text("KEY"), s.buffer(16)).fails(s, abi.NotFound)
			s.call("config", abi.ConfigSecret, s.text("GREETING"), s.buffer(16)).fails(s, abi.NotFound)
			s.call("config", abi.ConfigEnv, s.text("PATH"), s.buffer(16)).fails(s, abi.NotFound)
		}},
	}
}

// A waitFor is one record of wait.
type waitFor struct {
	handle   any // a number or a step
	interest uint32
}

// waits puts the records of wait into memory, handles of steps included.
func (s *script) waits(list ...waitFor) span {
	sp := s.buffer(len(list) * abi.WaitSize)
	for i, w := range list {
		at := int(sp.p) + i*abi.WaitSize
		s.call("store", at, w.handle)
		s.call("store", at+4, int(w.interest))
	}
	return sp
}

// ready expects the ready bits of each record of wait.
func (s *script) ready(sp span, want ...uint32) {
	s.checks = append(s.checks, func(m image) error {
		b := m.bytes(sp)
		for i, bits := range want {
			if got := binary.LittleEndian.Uint32(b[i*abi.WaitSize+8:]); got != bits {
				return fmt.Errorf("record %d of wait is ready for %d, want %d", i, got, bits)
			}
		}
		return nil
	})
}

const untouchedReady = filler<<24 | filler<<16 | filler<<8 | filler

func waitCases() []testCase {
	return []testCase{
		{rule: "7.2", name: "without handles it sleeps", script: func(s *script) {
			before, after := s.cell(abi.StatusSize), s.cell(abi.StatusSize)
			s.call("status", before).gives(s, 0)
			s.call("wait", 0, 0, int(50*time.Millisecond)).gives(s, 0)
			s.call("status", after).gives(s, 0)
			s.checks = append(s.checks, func(m image) error {
				slept := int64(binary.LittleEndian.Uint64(m.bytes(span(before))) - binary.LittleEndian.Uint64(m.bytes(span(after))))
				if slept < int64(50*time.Millisecond) {
					return fmt.Errorf("slept %v", time.Duration(slept))
				}
				return nil
			})
		}},
		{rule: "7.2", name: "a timeout of zero asks, and one above zero ends", script: func(s *script) {
			h := s.call("fetch", s.text("up"), s.record(callTo("GET", "/hang")), 0, 0).atLeast(s, 4)
			asks, ends := s.waits(waitFor{h, abi.WaitRead}), s.waits(waitFor{h, abi.WaitRead})
			s.call("wait", asks, 0).gives(s, 0)
			s.call("wait", ends, int(20*time.Millisecond)).gives(s, 0)
			s.ready(asks, 0)
			s.ready(ends, 0)
			s.call("close", h).gives(s, 0)
		}},
		{rule: "7.2", name: "it waits for the first of several", script: func(s *script) {
			hangs := s.call("fetch", s.text("up"), s.record(callTo("GET", "/hang")), 0, 0).atLeast(s, 4)
			answers := s.call("fetch", s.text("up"), s.record(callTo("GET", "/echo")), 0, 0).atLeast(s, 4)
			both := s.waits(waitFor{hangs, abi.WaitRead}, waitFor{answers, abi.WaitRead})
			s.call("wait", both, -1).gives(s, 1)
			s.ready(both, 0, abi.WaitRead)
			s.call("fetch_head", answers, 0, 0, abi.FlagNoBlock).atLeast(s, 1)
			s.call("fetch_head", hangs, 0, 0, abi.FlagNoBlock).fails(s, abi.Again)
		}},
		{rule: "7.2", name: "a body that has bytes or ended is ready to read", body: "xy", script: func(s *script) {
			sp := s.waits(waitFor{abi.HandleRequestBody, abi.WaitRead})
			s.call("wait", sp, -1).gives(s, 1)
			s.call("drain", abi.HandleRequestBody).gives(s, 2)
			end := s.waits(waitFor{abi.HandleRequestBody, abi.WaitRead})
			s.call("wait", end, -1).gives(s, 1)
			s.ready(end, abi.WaitRead)
			s.call("read", abi.HandleRequestBody, s.buffer(1), abi.FlagNoBlock).gives(s, 0)
		}},
	}
}

func readyCases() []testCase {
	return []testCase{
		{rule: "7.2", name: "the answer's body is ready to write", script: func(s *script) {
			s.call("response_head", 200, 0, 0, 0).gives(s, 0)
			sp := s.waits(waitFor{abi.HandleResponseBody, abi.WaitWrite})
			s.call("wait", sp, -1).gives(s, 1)
			s.ready(sp, abi.WaitWrite)
			s.answer = resultsInDump
		}},
		{rule: "7.2", name: "a lease is ready when its result is there", script: func(s *script) {
			object := s.text("doc/wait")
			held := s.call("lease_acquire", object, 0, 0, 0, 0).atLeast(s, 4)
			sp := s.waits(waitFor{held, abi.WaitRead})
			s.call("wait", sp, -1).gives(s, 1)
			s.call("lease_result", held, s.cell(abi.LeaseSize), abi.FlagNoBlock).gives(s, 0)
			queued := s.call("lease_acquire", object, 0, 0, s.record(numberField(abi.FieldWait, uint64(time.Minute)))).atLeast(s, 4)
			s.call("wait", s.waits(waitFor{queued, abi.WaitRead}), int(30*time.Millisecond)).gives(s, 0)
		}},
		{rule: "7.2", name: "a handle that has failed is ready and says so", script: func(s *script) {
			h := s.call("fetch", s.text("gone"), s.record(callTo("GET", "/")), 0, 0).atLeast(s, 4)
			sp := s.waits(waitFor{h, abi.WaitRead})
			s.call("wait", sp, -1).gives(s, 1)
			s.ready(sp, abi.WaitRead|abi.WaitFailed)
			s.call("fetch_head", h, 0, 0, abi.FlagNoBlock).fails(s, abi.DependencyFailed)
		}},
		{rule: "7.2", name: "what cannot be waited for is refused, and nothing written", script: func(s *script) {
			admission := s.call("admit", s.text("up"), 0).atLeast(s, 4)
			refuse := func(want abi.Code, list ...waitFor) {
				sp := s.waits(append([]waitFor{{abi.HandleRequestBody, abi.WaitRead}}, list...)...)
				s.call("wait", sp, 0).fails(s, want)
				s.ready(sp, untouchedReady, untouchedReady)
			}
			refuse(abi.NotFound, waitFor{noSuchHandle, abi.WaitRead})
			refuse(abi.Invalid, waitFor{admission, abi.WaitRead})
			refuse(abi.Invalid, waitFor{abi.HandleRequestBody, abi.WaitWrite})
			refuse(abi.Invalid, waitFor{abi.HandleResponseBody, abi.WaitRead})
			refuse(abi.Invalid, waitFor{abi.HandleRequestBody, 0})
			s.call("wait", s.buffer(abi.WaitSize+1), 0).fails(s, abi.Invalid)
			s.call("wait", s.buffer((abi.MaxHandles+1)*abi.WaitSize), 0).fails(s, abi.TooLarge)
		}},
	}
}

func laterCases() []testCase {
	return []testCase{
		{rule: "7.8", name: "functions of a later version are unsupported, whatever their arguments", script: func(s *script) {
			for _, f := range abi.Functions() {
				if !strings.HasPrefix(f.Name, "reserve") && !strings.HasPrefix(f.Name, "cache") {
					continue
				}
				arguments := make([]any, len(f.Params))
				for i := range arguments {
					arguments[i] = math.MaxUint32
				}
				s.call(f.Name, arguments...).fails(s, abi.Unsupported)
			}
			s.call("abi", abi.FeatureReservation).gives(s, 0)
			s.call("abi", abi.FeatureCache).gives(s, 0)
		}},
	}
}
