package conformance

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// lease adds an acquisition that waits its turn and must be granted.
func (s *script) lease(object string) (*step, cell) {
	grant := s.cell(abi.LeaseSize)
	options := numberField(abi.FieldWait, uint64(5*time.Second))
	h := s.call("lease_acquire", s.text(object), 0, 0, s.record(options)).atLeast(s, 4)
	s.call("lease_result", h, grant, 0).gives(s, 0)
	return h, grant
}

// ascending expects growing words in cells.
func (s *script) ascending(cells ...cell) {
	s.checks = append(s.checks, func(m image) error {
		last := uint64(0)
		for _, c := range cells {
			next := binary.LittleEndian.Uint64(m.bytes(span(c)))
			if next <= last {
				return fmt.Errorf("%d follows %d", next, last)
			}
			last = next
		}
		return nil
	})
}

func leaseCases() []testCase {
	return []testCase{
		{rule: "7.6", name: "a grant has a fence and a time", script: func(s *script) {
			h, grant := s.lease("doc/grant")
			s.word(grant, 0, func(fence uint64) bool { return fence > 0 && fence < 1<<53 }, "a fence")
			s.word(grant, 8, func(ns uint64) bool { return ns > 0 && ns < 1e12 }, "a time")
			again := s.cell(abi.LeaseSize)
			s.call("lease_result", h, again, abi.FlagNoBlock).gives(s, 0)
			s.same(span{grant.p, 8}, span{again.p, 8})
		}},
		{rule: "7.6", name: "a lease that is held is busy, with a retry time", script: func(s *script) {
			object, out := s.text("doc/busy"), s.cell(abi.LeaseSize)
			h, _ := s.lease("doc/busy")
			second := s.call("lease_acquire", object, s.text("main"), 0, 0).atLeast(s, 4) // an empty name means main
			s.call("lease_result", second, out, 0).fails(s, abi.LeaseBusy)
			told := s.buffer(512)
			n := s.call("error", told).atLeast(s, abi.ErrorSize)
			s.failure(told, n, func(f abi.Failure) bool { return f.Code == abi.LeaseBusy && f.RetryAfter > 0 }, "lease_busy with a retry time")
			s.call("lease_result", second, out, 0).fails(s, abi.LeaseBusy) // it is final
			s.call("lease_release", second, 0).gives(s, 0)
			other := s.call("lease_acquire", object, s.text("other"), 0, 0).atLeast(s, 4)
			s.call("lease_result", other, s.cell(abi.LeaseSize), 0).gives(s, 0)
			s.call("lease_release", h, 0).gives(s, 0)
			s.untouched(span(out))
		}},
		{rule: "7.6", name: "a release wakes who waits, and fences grow", script: func(s *script) {
			object := s.text("doc/queue")
			first, one := s.lease("doc/queue")
			wait := s.record(numberField(abi.FieldWait, uint64(5*time.Second)))
			second := s.call("lease_acquire", object, 0, 0, wait).atLeast(s, 4)
			two, three := s.cell(abi.LeaseSize), s.cell(abi.LeaseSize)
			s.call("lease_result", second, two, abi.FlagNoBlock).fails(s, abi.Again)
			s.call("lease_release", first, 0).gives(s, 0)
			s.call("lease_result", second, two, 0).gives(s, 0)
			s.call("lease_release", second, abi.FlagNoBlock).gives(s, 0)
			third := s.call("lease_acquire", object, 0, 0, wait).atLeast(s, 4)
			s.call("lease_result", third, three, 0).gives(s, 0)
			s.ascending(one, two, three)
		}},
	}
}

func leaseEndCases() []testCase {
	return []testCase{
		{rule: "7.6", name: "a released lease's handle is gone", script: func(s *script) {
			h, _ := s.lease("doc/gone")
			s.call("lease_release", h, 0).gives(s, 0)
			s.call("lease_release", h, 0).fails(s, abi.NotFound)
			s.call("lease_result", h, s.cell(abi.LeaseSize), 0).fails(s, abi.NotFound)
		}},
		{rule: "7.4", name: "closing a lease releases it, or gives a pending one up", script: func(s *script) {
			h, _ := s.lease("doc/closed")
			wait := s.record(numberField(abi.FieldWait, uint64(time.Minute)))
			pending := s.call("lease_acquire", s.text("doc/closed"), 0, 0, wait).atLeast(s, 4)
			s.call("close", pending).gives(s, 0)
			s.call("close", h).gives(s, 0)
			s.lease("doc/closed")
		}},
		{rule: "2.7", name: "the end of a request releases its leases", before: func(s *script) {
			s.lease("doc/ended")
			s.head(204)
		}, script: func(s *script) { s.lease("doc/ended") }},
		{rule: "2.7", name: "a trap releases the leases of its request", before: func(s *script) {
			s.lease("doc/trapped")
			s.call("trap")
		}, script: func(s *script) { s.lease("doc/trapped") }},
		{rule: "2.6", name: "a client that goes away ends the waiting of its guest", leaves: true, before: func(s *script) {
			s.lease("doc/abandoned")
			s.head(200)
			s.call("flush", abi.HandleResponseBody)
			s.call("wait", 0, 0, -1)
		}, script: func(s *script) { s.lease("doc/abandoned") }},
		{rule: "7.6", name: "wait bounds the queueing", script: func(s *script) {
			s.lease("doc/bounded")
			wait := s.record(numberField(abi.FieldWait, uint64(30*time.Millisecond)))
			second := s.call("lease_acquire", s.text("doc/bounded"), 0, 0, wait).atLeast(s, 4)
			s.call("lease_result", second, s.cell(abi.LeaseSize), 0).fails(s, abi.LeaseBusy)
		}},
		{rule: "7.6", name: "objects that the manifest does not give are denied", script: func(s *script) {
			for _, object := range []string{"other/1", "doc", "doc/"} {
				s.call("lease_acquire", s.text(object), 0, 0, 0, 0).fails(s, abi.Denied)
				s.call("state_get", s.text(object), s.text("k"), 0, 0, 0, s.cell(8)).fails(s, abi.Denied)
				s.call("state_put", s.text(object), s.text("k"), 0, 0, 0, 0, s.cell(8)).fails(s, abi.Denied)
			}
		}},
		{rule: "7.6", name: "options out of bounds are invalid", script: func(s *script) {
			wide := s.record(numberField(abi.FieldTTL, 1<<63))
			s.call("lease_acquire", s.text("doc/options"), 0, 0, wide).fails(s, abi.Invalid)
			for _, options := range [][]byte{
				numberField(abi.FieldTTL, 1), numberField(abi.FieldTTL, 1<<62),
				append(numberField(abi.FieldTTL, uint64(time.Second)), numberField(abi.FieldRenewEvery, uint64(2*time.Second))...),
			} {
				h := s.call("lease_acquire", s.text("doc/options"), 0, 0, s.record(options)).atLeast(s, 4)
				s.call("lease_result", h, s.cell(abi.LeaseSize), 0).fails(s, abi.Invalid)
			}
			good := append(numberField(abi.FieldTTL, uint64(2*time.Second)), numberField(abi.FieldRenewEvery, uint64(500*time.Millisecond))...)
			h := s.call("lease_acquire", s.text("doc/options"), 0, 0, s.record(good)).atLeast(s, 4)
			grant := s.cell(abi.LeaseSize)
			s.call("lease_result", h, grant, 0).gives(s, 0)
			s.word(grant, 8, func(ns uint64) bool { return ns > 0 && ns <= uint64(2*time.Second) }, "a part of 2 s")
		}},
	}
}

func stateCases() []testCase {
	isZero := func(n uint64) bool { return n == 0 }
	return []testCase{
		{rule: "7.7", name: "a value is created, read, replaced, and conflicts are told", script: func(s *script) {
			object, key := s.text("doc/value"), s.text("a key of any kind: /.*> \x00é")
			absent, one, two, read := s.cell(8), s.cell(8), s.cell(8), s.cell(8)
			buf := s.buffer(8)
			s.call("state_get", object, key, 0, buf, absent).fails(s, abi.NotFound)
			s.word(absent, 0, isZero, "0")
			s.untouched(buf)
			s.call("state_put", object, key, 0, 0, s.text("first"), one).gives(s, 0)
			value := s.buffer(8)
			s.call("state_get", object, key, 0, value, read).gives(s, 5)
			s.holds(value, "first\xaa")
			s.same(span(one), span(read))
			s.call("state_put", object, key, load(read), 0, s.text("second"), two).gives(s, 0)
			s.ascending(one, two)
			untouched, told := s.cell(8), s.buffer(512)
			s.call("state_put", object, key, load(one), 0, s.text("late"), untouched).fails(s, abi.Conflict)
			n := s.call("error", told).atLeast(s, abi.ErrorSize)
			s.untouched(span(untouched))
			s.checks = append(s.checks, func(m image) error {
				f, err := abi.ParseFailure(m.bytes(told)[:m.results[n.number]])
				if newest := binary.LittleEndian.Uint64(m.bytes(span(two))); err == nil && (f.Code != abi.Conflict || f.Revision != newest) {
					return fmt.Errorf("error told %+v, want a conflict with revision %d", f, newest)
				}
				return err
			})
			s.call("state_put", object, key, 0, 0, s.text("created"), untouched).fails(s, abi.Conflict)
		}},
		{rule: "7.7", name: "a value that does not fit leaves both places alone", script: func(s *script) {
			object, key := s.text("doc/short"), s.text("k")
			small, revision := s.buffer(4), s.cell(8)
			s.call("state_put", object, key, 0, 0, s.text("12345"), s.cell(8)).gives(s, 0)
			s.call("state_get", object, key, 0, small, revision).gives(s, 5)
			s.untouched(small)
			s.untouched(span(revision))
		}},
		{rule: "7.7", name: "an empty value is not an absent one", script: func(s *script) {
			object, key, revision := s.text("doc/empty"), s.text("k"), s.cell(8)
			s.call("state_put", object, key, 0, 0, 0, 0, s.cell(8)).gives(s, 0)
			s.call("state_get", object, key, 0, s.buffer(4), revision).gives(s, 0)
			s.word(revision, 0, func(n uint64) bool { return n > 0 }, "a revision")
		}},
		{rule: "8", name: "a value has up to 49,152 bytes", script: func(s *script) {
			object, key := s.text("doc/large"), s.text("k")
			large := s.text(strings.Repeat("v", abi.MaxState+1))
			s.call("state_put", object, key, 0, 0, large, s.cell(8)).fails(s, abi.TooLarge)
			s.call("state_put", object, key, 0, 0, span{large.p, abi.MaxState}, s.cell(8)).gives(s, 0)
			s.call("state_get", object, key, 0, 0, 0, s.cell(8)).gives(s, abi.MaxState)
		}},
	}
}

func leasedStateCases() []testCase {
	return []testCase{
		{rule: "7.7", name: "under a lease a key carries its fence", script: func(s *script) {
			object, key := s.text("doc/leased"), s.text("k")
			first, _ := s.lease("doc/leased")
			create, one, two := s.cell(8), s.cell(8), s.cell(8)
			s.call("state_get", object, key, first, s.buffer(8), create).fails(s, abi.NotFound)
			s.call("state_put", object, key, load(create), first, s.text("first"), one).gives(s, 0)
			s.call("lease_release", first, 0).gives(s, 0)
			second, _ := s.lease("doc/leased")
			value, read := s.buffer(8), s.cell(8)
			s.call("state_get", object, key, second, value, read).gives(s, 5)
			s.holds(value, "first\xaa")
			s.call("state_put", object, key, load(read), second, s.text("second"), two).gives(s, 0)
			s.ascending(create, one, read, two)
			hint := s.buffer(8)
			s.call("state_get", object, key, 0, hint, s.cell(8)).gives(s, 6)
			s.holds(hint, "second\xaa")
		}},
		{rule: "7.7", name: "under a lease a new key needs no reading, an old one does", script: func(s *script) {
			object, fresh, old, revision := s.text("doc/unread"), s.text("fresh"), s.text("old"), s.cell(8)
			s.call("state_put", object, old, 0, 0, s.text("v"), revision).gives(s, 0)
			lease, _ := s.lease("doc/unread")
			s.call("state_put", object, fresh, 0, lease, s.text("v"), s.cell(8)).gives(s, 0)
			s.call("state_put", object, old, load(revision), lease, s.text("w"), s.cell(8)).fails(s, abi.Conflict)
			s.call("state_get", object, old, lease, s.buffer(4), revision).gives(s, 1)
			s.call("state_put", object, old, load(revision), lease, s.text("w"), s.cell(8)).gives(s, 0)
		}},
		{rule: "7.7", name: "the lease is one of the same object, and held", script: func(s *script) {
			object, key, out := s.text("doc/mine"), s.text("k"), s.cell(8)
			other, _ := s.lease("doc/theirs")
			s.call("state_get", object, key, other, 0, 0, out).fails(s, abi.Invalid)
			s.call("state_put", object, key, 0, other, 0, 0, out).fails(s, abi.Invalid)
			s.call("state_get", object, key, noSuchHandle, 0, 0, out).fails(s, abi.NotFound)
			s.call("state_put", object, key, 0, abi.HandleResponseBody, 0, 0, out).fails(s, abi.Invalid)
			mine, _ := s.lease("doc/mine")
			s.call("lease_release", mine, 0).gives(s, 0)
			s.call("state_get", object, key, mine, 0, 0, out).fails(s, abi.NotFound)
			s.untouched(span(out))
		}},
		{rule: "7.7", name: "leases of other names have other keys", script: func(s *script) {
			object, key, out := s.text("doc/names"), s.text("k"), s.cell(8)
			s.call("state_put", object, key, 0, 0, s.text("of main"), s.cell(8)).gives(s, 0)
			other := s.call("lease_acquire", object, s.text("other"), 0, 0).atLeast(s, 4)
			s.call("lease_result", other, s.cell(abi.LeaseSize), 0).gives(s, 0)
			s.call("state_get", object, key, other, s.buffer(8), out).fails(s, abi.NotFound)
		}},
	}
}
