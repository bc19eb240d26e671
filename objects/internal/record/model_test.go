package record

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The machines below drive a record through every command in any order, with
// owners that crash, lose writes and have clocks of their own, and hold against it
// a model that knows the true time.

// world is what both machines share: true time, and an owner with its own clock
// that has a record in memory and one in the store.
type world struct {
	now    time.Duration // true
	start  time.Duration // of the owner, on the true clock
	record Record        // as the owner knows it
	stored []byte
	decode func([]byte, Now) (Record, error)
}

func (w *world) owner() Now { return Now{Mono: w.now - w.start} }

// change runs one batch: tick, commands, write, commit. A write that is lost takes
// the batch with it.
func (w *world) change(t *rapid.T, cmds ...Command) []Answer {
	next := w.record.Clone()
	next.Tick(w.owner())
	var answers []Answer
	for _, cmd := range cmds {
		a, _ := next.Apply(cmd, w.owner())
		answers = append(answers, a)
	}
	data, err := next.Encode(w.owner())
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
		return nil
	}
	next.Commit(w.owner())
	w.record, w.stored = next, data
	return answers
}

// takeOver is a crash and the next owner's claim, whose clock starts anew.
func (w *world) takeOver(t *rapid.T) {
	w.start = w.now
	r, err := w.decode(w.stored, w.owner())
	if err != nil {
		t.Fatal(err)
	}
	w.record = r
}

func (w *world) wait(t *rapid.T) {
	w.now += time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond
}

func TestLeasesAgainstTheModel(t *testing.T) {
	type holder struct {
		lease   string
		fence   uint64
		renewal int
		until   time.Duration // true time until which it acts: sent + 0.8 ttl
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{record: NewPage(), decode: DecodePage}
		w.change(t)
		if w.stored == nil {
			w.stored, _ = w.record.Encode(w.owner())
		}
		var (
			holders []*holder
			newest  uint64
			ops     int
		)
		acting := func(lease string) (n int) {
			for _, h := range holders {
				if h.lease == lease && w.now < h.until {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait":     w.wait,
			"takeOver": w.takeOver,
			"acquire": func(t *rapid.T) {
				ops++
				lease := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lease")
				cmd := Acquire{Lease: lease, Op: fmt.Sprint(ops), Attempt: 1, TTL: ttl}
				for _, a := range w.change(t, cmd) {
					if a.Code != 0 {
						continue
					}
					if a.Fence <= newest {
						t.Fatalf("fence %d after %d", a.Fence, newest)
					}
					newest = a.Fence
					holders = append(holders, &holder{lease, a.Fence, 0, w.now + ttl*8/10})
				}
			},
			"renew": func(t *rapid.T) {
				if len(holders) == 0 {
					return // nobody holds
				}
				h := rapid.SampledFrom(holders).Draw(t, "holder")
				if w.now >= h.until {
					return // a loss is final
				}
				h.renewal++
				for _, a := range w.change(t, Renew{h.lease, h.fence, h.renewal}) {
					if a.Code != 0 {
						t.Fatalf("the holder of fence %d lost its lease before its deadline", h.fence)
					}
					h.until = w.now + ttl*8/10
				}
			},
			"release": func(t *rapid.T) {
				if len(holders) == 0 {
					return // nobody holds
				}
				h := rapid.SampledFrom(holders).Draw(t, "holder")
				h.until = w.now
				w.change(t, Release{h.lease, h.fence})
			},
			"": func(t *rapid.T) {
				for _, lease := range []string{"a", "b"} {
					if n := acting(lease); n > 1 {
						t.Fatalf("%d holders of %s act at once", n, lease)
					}
				}
			},
		})
		// With one owner that stays, everything lapses within its time.
		w.takeOver(t)
		w.now += ttl * 11 / 10
		w.record.Tick(w.owner())
		if n := len(w.record.(*Page).Leases); n != 0 {
			t.Fatalf("%d leases outlive their time", n)
		}
	})
}

func TestBreakerAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{record: NewObject(), decode: DecodeObject}
		w.stored, _ = w.record.Encode(w.owner())
		var (
			generation, fence uint64
			openedAt          time.Duration
			admitted          []Answer
			ops               int
		)
		object := func() *Object { return w.record.(*Object) }
		t.Repeat(map[string]func(*rapid.T){
			"wait":     w.wait,
			"takeOver": w.takeOver,
			"report": func(t *rapid.T) {
				w.change(t, Report{
					Generation: rapid.Uint64Range(0, object().Breaker.Generation).Draw(t, "generation"),
					Failures:   rapid.IntRange(0, 3).Draw(t, "failures"),
					Success:    rapid.Bool().Draw(t, "success"),
					Policy:     policy,
				})
			},
			"totals": func(t *rapid.T) {
				w.change(t, Totals{
					Generation: rapid.Uint64Range(0, object().Breaker.Generation).Draw(t, "generation"),
					Host:       rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host"),
					Number:     rapid.Uint64Range(1, 9).Draw(t, "number"),
					Counts:     Counts{Calls: rapid.IntRange(0, 9).Draw(t, "calls"), Failures: rapid.IntRange(0, 9).Draw(t, "failures")},
					Policy:     byRate,
				})
			},
			"claim": func(t *rapid.T) {
				ops++
				was := object().Breaker.State
				for _, a := range w.change(t, claim(fmt.Sprint(ops))) {
					if a.Fence == 0 {
						continue
					}
					if a.Fence <= fence {
						t.Fatalf("fence %d after %d", a.Fence, fence)
					}
					if was == Open && w.now < openedAt+time.Duration(policy.ResetAfter) {
						t.Fatalf("a probe %v after the breaker opened", w.now-openedAt)
					}
					fence = a.Fence
					admitted = append(admitted, a)
				}
			},
			"settle": func(t *rapid.T) {
				if len(admitted) == 0 {
					return // no probe has gone out
				}
				a := rapid.SampledFrom(admitted).Draw(t, "probe")
				accepted := object().Probe != nil && object().Probe.Fence == a.Fence || object().Breaker.Settled == a.Fence
				verdict := Verdict(rapid.IntRange(0, 2).Draw(t, "verdict"))
				for _, got := range w.change(t, Settle{Generation: a.Generation, Fence: a.Fence, Verdict: verdict, Policy: policy}) {
					if got.Code == 0 && !accepted {
						t.Fatalf("the verdict of fence %d was taken", a.Fence)
					}
				}
			},
			"": func(t *rapid.T) {
				b := object().Breaker
				if b.Generation < generation {
					t.Fatalf("the generation went from %d to %d", generation, b.Generation)
				}
				if b.State == Open && b.Generation != generation {
					openedAt = w.now
				}
				generation = b.Generation
				if (b.State != HalfOpen) && object().Probe != nil {
					t.Fatalf("a probe while the breaker is %s", b.State)
				}
			},
		})
		// With one owner that stays, a probe can be claimed within a bound.
		w.takeOver(t)
		w.now += probeTTL * 11 / 10
		w.record.Tick(w.owner())
		w.record.Commit(w.owner())
		w.now += time.Duration(policy.MaxResetAfter) * 5 / 4
		if object().Breaker.State == Closed {
			return
		}
		w.record.Tick(w.owner())
		if a, _ := w.record.Apply(claim("end"), w.owner()); a.Code != 0 || a.Fence == 0 {
			t.Fatalf("got %+v from %+v, want a probe", a, object().Breaker)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, r := range []Record{NewObject(), NewPage()} {
		data, err := r.Encode(Now{})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"schema":1,"breaker":{"state":"half_open"},"probe":{"ttl":"-1s","running":{"elapsed":"9h"}}}`))
	f.Add([]byte("{\"schema\":1,\"fence\":3}\nvalue"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func([]byte, Now) (Record, error){DecodeObject, DecodePage} {
			r, err := decode(data, at(time.Second))
			if err != nil {
				continue
			}
			// What was accepted can be used.
			r.Tick(at(time.Minute))
			r.Apply(claim("x"), at(time.Minute))
			r.Apply(acquire("x", "x"), at(time.Minute))
			if _, err := r.Encode(at(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := DecodeState(data); err == nil {
			if _, err := s.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
