package attempt_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

// call returns an idempotent call with time for many attempts.
func call(try func(number int, reason string) (attempt.Result, error)) attempt.Call {
	return attempt.Call{
		Idempotent: true, Timeout: time.Second, Deadline: time.Now().Add(time.Minute),
		Try: try, Owned: func() error { return nil }, Open: func() bool { return false },
	}
}

// do makes a call, and returns the status and text of what came of it.
func do(ctx context.Context, retries *attempt.Retries, c attempt.Call) (status int, text string, err error) {
	response, err := retries.Do(ctx, c)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

func always(r attempt.Result) func(int, string) (attempt.Result, error) {
	return func(int, string) (attempt.Result, error) { return r, nil }
}

func TestTheBudgetHoldsUnderAThousandParallelFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		var first, again atomic.Int64
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() {
				status, _, err := do(t.Context(), retries, call(func(number int, _ string) (attempt.Result, error) {
					if number == 1 {
						first.Add(1)
					} else {
						again.Add(1)
					}
					return answered(503), nil
				}))
				if err != nil || status != 503 {
					t.Errorf("got %d, %v", status, err)
				}
			})
		}
		calls.Wait()
		if first.Load() != 1000 || again.Load() > 200 || again.Load() < 100 {
			t.Errorf("%d calls, %d retries; want 1000, and 200 at most", first.Load(), again.Load())
		}
	})
}

func TestRetriesCountWhenTheyAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{BaseDelay: time.Second, MaxDelay: time.Second, Attempts: 2}), func() float64 { return 1 })
		var decided, left atomic.Int64
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() {
				c := call(func(number int, _ string) (attempt.Result, error) {
					if number > 1 {
						left.Add(1)
					}
					return answered(503), nil
				})
				c.Decided = func(number int, d attempt.Decision) {
					if number == 1 && d.Retry {
						decided.Add(1)
					}
				}
				_, _, _ = do(t.Context(), retries, c) // 503 all over
			})
		}
		synctest.Wait()
		if decided.Load() != 200 || left.Load() != 0 {
			t.Errorf("%d retries queued, %d left; want 200 and none yet", decided.Load(), left.Load())
		}
		calls.Wait()
	})
}

func TestABudgetRefillsWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		attempts := func() (n int) {
			for range 30 {
				_, _, _ = do(t.Context(), retries, call(func(int, string) (attempt.Result, error) {
					n++
					return answered(503), nil
				}))
			}
			return n
		}
		if n := attempts(); n != 40 {
			t.Errorf("%d attempts for 30 calls, want the ten retries that every window has", n)
		}
		<-time.After(11 * time.Second)
		if n := attempts(); n != 40 {
			t.Errorf("%d attempts for 30 calls after the window has passed, want 40", n)
		}
	})
}

func TestARetryThatIsNotAdmittedLeavesTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		busy := answered(503)
		busy.Response.ContentLength = 4
		busy.Response.Body = io.NopCloser(strings.NewReader("busy"))
		attempts := 0
		status, text, err := do(t.Context(), retries, call(func(number int, _ string) (attempt.Result, error) {
			attempts++
			if number > 1 {
				return attempt.Result{}, &objects.Refusal{Code: abi.BreakerOpen}
			}
			return busy, nil
		}))
		if err != nil || attempts != 2 || status != 503 || text != "busy" {
			t.Errorf("got %d %q, %v after %d attempts, want the answer of the first", status, text, err, attempts)
		}
	})
}

func TestAnOpenBreakerIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		refused := &objects.Refusal{Code: abi.BreakerOpen}
		attempts := 0
		_, _, err := do(t.Context(), retries, call(func(int, string) (attempt.Result, error) {
			attempts++
			return attempt.Result{}, refused
		}))
		if !errors.Is(err, refused) || attempts != 1 {
			t.Errorf("got %v after %d attempts", err, attempts)
		}
		attempts = 0
		opened := call(func(int, string) (attempt.Result, error) {
			attempts++
			return answered(503), nil
		})
		opened.Open = func() bool { return true } // by this very failure
		if status, _, err := do(t.Context(), retries, opened); err != nil || status != 503 || attempts != 1 {
			t.Errorf("got %d, %v after %d attempts", status, err, attempts)
		}
	})
}

func TestACallThatLostItsLeaseIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		for _, lost := range []abi.Code{abi.LeaseLost, abi.ReservationLost, abi.Fenced} {
			attempts, held := 0, true
			c := call(func(int, string) (attempt.Result, error) {
				attempts++
				held = false // while the attempt was under way
				return answered(503), nil
			})
			c.Owned = func() error {
				if held {
					return nil
				}
				return lost
			}
			if _, _, err := do(t.Context(), retries, c); !errors.Is(err, lost) || attempts != 1 {
				t.Errorf("got %v after %d attempts, want %v after one", err, attempts, lost)
			}
		}
	})
}

func TestNoAttemptStartsThatCannotEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{Attempts: 10, Budget: 1}), nil)
		begun := time.Now()
		var starts []time.Duration
		c := call(func(int, string) (attempt.Result, error) {
			starts = append(starts, time.Since(begun))
			<-time.After(400 * time.Millisecond)
			r := answered(503)
			r.Took = 400 * time.Millisecond
			return r, nil
		})
		c.Timeout, c.Deadline = time.Second, begun.Add(2*time.Second)
		if _, _, err := do(t.Context(), retries, c); err != nil {
			t.Fatal(err)
		}
		for _, start := range starts {
			if start > 1500*time.Millisecond {
				t.Errorf("an attempt started at %v, with less than half of its timeout left", start)
			}
		}
		if len(starts) < 2 {
			t.Errorf("%d attempts", len(starts))
		}
	})
}

func TestTheEndOfTheCallEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(abi.LeaseLost) })
		begun := time.Now()
		_, _, err := do(ctx, retries, call(always(answered(503, "Retry-After", "30"))))
		if took := time.Since(begun); !errors.Is(err, abi.LeaseLost) || took != time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

func TestAnswersThatDoNotStandAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		var bodies []*closing
		broken := errors.New("broken off")
		status, _, err := do(t.Context(), retries, call(func(number int, _ string) (attempt.Result, error) {
			if number == 3 && (!bodies[0].closed || bodies[1].closed) {
				t.Error("an answer is kept until the next attempt has ended, and no longer")
			}
			bodies = append(bodies, &closing{Reader: iotest.ErrReader(broken)})
			return attempt.Result{Response: &http.Response{StatusCode: 503, Body: bodies[number-1], ContentLength: 3}}, nil
		}))
		if status != 503 || !errors.Is(err, broken) || !bodies[1].closed {
			t.Errorf("got %d, %v", status, err)
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestARepeatedFailureIsTheLastOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		var reasons []string
		_, _, err := do(t.Context(), retries, call(func(_ int, reason string) (attempt.Result, error) {
			reasons = append(reasons, reason)
			return failed(egress.Connect), nil
		}))
		if !errors.Is(err, abi.DependencyFailed) || strings.Join(reasons, ",") != ",connect,connect" {
			t.Errorf("got %v after attempts for %q", err, reasons)
		}
	})
}

func TestAShortAnswerIsReadBeforeThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := attempt.NewRetries(resolved(t, attempt.Policy{}), nil)
		short, long := strings.NewReader("busy"), strings.NewReader(strings.Repeat("x", 1<<20))
		for text, held := range map[*strings.Reader]bool{short: false, long: true} {
			r := answered(503)
			r.Response.ContentLength, r.Response.Body = text.Size(), io.NopCloser(text)
			_, _, err := do(t.Context(), retries, call(func(number int, _ string) (attempt.Result, error) {
				if left := text.Len() > 0; number == 2 && left != held {
					t.Errorf("of %d bytes %d hold the connection while the call waits", text.Size(), text.Len())
				}
				return r, nil
			}))
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkACallThatSucceeds(b *testing.B) {
	retries := attempt.NewRetries(resolved(b, attempt.Policy{}), nil)
	c := call(always(answered(200)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := retries.Do(b.Context(), c); err != nil { //nolint:bodyclose // it has none
			b.Fatal(err)
		}
	}
}
