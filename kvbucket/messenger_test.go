package kvbucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A line is one implementation of Messenger under test: its two ends, which for NATS
// are two connections.
type line struct {
	*testing.T
	ctx        context.Context
	caller     kvbucket.Messenger
	listener   kvbucket.Messenger
	hangUpCall func() // closes the caller's end
}

func forEachMessenger(t *testing.T, test func(t line)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		m := kvbucket.NewMemoryMessenger()
		test(line{t, deadline(t), m, m, func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}})
	})
	t.Run("nats", func(t *testing.T) {
		s := startServer(t, kvbucket.ServerConfig{LazySync: true})
		c := dialServer(t, s)
		test(line{t, deadline(t), messengerOn(t, c), messengerOn(t, dialServer(t, s)), func() {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}})
	})
}

func messengerOn(tb testing.TB, c *kvbucket.Conn) *kvbucket.NATSMessenger {
	tb.Helper()
	m, err := c.Messenger(kvbucket.MessengerConfig{Host: "alpha", Version: "v1.2.3"})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

type handler = func(ctx context.Context, request []byte) []byte

// serve answers at an address until the test ends, or the returned function is called.
func serve(tb testing.TB, m kvbucket.Messenger, address string, handle handler) (stop func()) {
	tb.Helper()
	stopServing, err := m.Serve(address, handle)
	if err != nil {
		tb.Fatal(err)
	}
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := stopServing(ctx); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

func echo(_ context.Context, request []byte) []byte { return request }

func TestAnswersGoToWhoeverAsked(t *testing.T) {
	forEachMessenger(t, func(t line) {
		serve(t, t.listener, "alpha=2E1", func(_ context.Context, request []byte) []byte { return append(request, " heard"...) })
		serve(t, t.listener, "beta", func(context.Context, []byte) []byte { return nil })
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				answer, err := t.caller.Call(t.ctx, "alpha=2E1", fmt.Append(nil, i))
				if want := fmt.Sprint(i, " heard"); err != nil || string(answer) != want {
					t.Errorf("call %d is answered %q, error %v", i, answer, err)
				}
			})
		}
		callers.Wait()
		if answer, err := t.caller.Call(t.ctx, "beta", nil); err != nil || len(answer) != 0 {
			t.Errorf("an empty request is answered %q, error %v", answer, err)
		}
	})
}

func TestAnAddressThatNobodyServesIsKnownAtOnce(t *testing.T) {
	forEachMessenger(t, func(t line) {
		began := time.Now()
		_, err := t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrNoListener)
		stop := serve(t, t.listener, "alpha", echo)
		if _, err := t.caller.Call(t.ctx, "alpha", nil); err != nil {
			t.Error(err)
		}
		stop()
		_, err = t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrNoListener)
		stop()
		serve(t, t.listener, "alpha", echo)
		if _, err := t.caller.Call(t.ctx, "alpha", nil); err != nil {
			t.Errorf("an address that is served again: %v", err)
		}
		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("took %v: a receipt was awaited", took)
		}
	})
}

func TestMessagesOfEverySizeUpToTheBound(t *testing.T) {
	forEachMessenger(t, func(t line) {
		serve(t, t.listener, "echo", echo)
		serve(t, t.listener, "chatterbox", func(context.Context, []byte) []byte { return make([]byte, kvbucket.MaxMessage+1) })
		longest := bytes.Repeat([]byte("x"), kvbucket.MaxMessage)
		if answer, err := t.caller.Call(t.ctx, "echo", longest); err != nil || !bytes.Equal(answer, longest) {
			t.Errorf("%d bytes are answered by %d, error %v", len(longest), len(answer), err)
		}
		_, err := t.caller.Call(t.ctx, "echo", append(longest, 'x'))
		wantError(t, err, kvbucket.ErrTooLarge)
		_, err = t.caller.Call(t.ctx, "chatterbox", nil)
		wantError(t, err, kvbucket.ErrTooLarge)
	})
}

func TestAnAddressIsOnePartOfAKey(t *testing.T) {
	forEachMessenger(t, func(t line) {
		for _, address := range []string{"", "a.b", "*", ">", "a b", "ü", strings.Repeat("a", kvbucket.MaxAddress+1)} {
			_, err := t.listener.Serve(address, echo)
			wantError(t, err, kvbucket.ErrInvalidAddress)
			_, err = t.caller.Call(t.ctx, address, nil)
			wantError(t, err, kvbucket.ErrInvalidAddress)
		}
		longest := strings.Repeat("a", kvbucket.MaxAddress)
		serve(t, t.listener, longest, echo)
		if _, err := t.caller.Call(t.ctx, longest, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsAndAnswersAreCopies(t *testing.T) {
	forEachMessenger(t, func(t line) {
		kept := []byte("kept")
		serve(t, t.listener, "alpha", func(_ context.Context, request []byte) []byte {
			request[0] = 'X'
			return kept
		})
		request := []byte("request")
		answer, err := t.caller.Call(t.ctx, "alpha", request)
		if err != nil {
			t.Fatal(err)
		}
		answer[0] = 'Y'
		if string(request) != "request" || string(kept) != "kept" {
			t.Errorf("the request is %q and the answer %q", request, kept)
		}
	})
}

// A stuck handler reports that it runs and ends when told to.
type stuckHandler struct {
	entered chan context.Context
	leave   chan string
}

func newStuckHandler() *stuckHandler {
	return &stuckHandler{make(chan context.Context, 1<<16), make(chan string)}
}

func (s *stuckHandler) handle(ctx context.Context, _ []byte) []byte {
	s.entered <- ctx
	select {
	case answer := <-s.leave:
		return []byte(answer)
	case <-time.After(patience):
		return nil
	}
}

// enter waits until a handler runs, and returns its context.
func (s *stuckHandler) enter(t line) context.Context {
	t.Helper()
	select {
	case ctx := <-s.entered:
		return ctx
	case <-t.ctx.Done():
		t.Error("no handler runs")
		return t.ctx
	}
}

// release lets one handler answer.
func (s *stuckHandler) release(t line, answer string) {
	t.Helper()
	select {
	case s.leave <- answer:
	case <-t.ctx.Done():
		t.Error("no handler waits")
	}
}

func TestAnAnswerMayTakeLongerThanItsReceipt(t *testing.T) {
	forEachMessenger(t, func(t line) {
		s := newStuckHandler()
		serve(t, t.listener, "alpha", s.handle)
		released := time.AfterFunc(1200*time.Millisecond, func() { s.release(t, "at last") })
		defer released.Stop()
		answer, err := t.caller.Call(t.ctx, "alpha", nil)
		if err != nil || string(answer) != "at last" {
			t.Errorf("got %q, error %v", answer, err)
		}
		if n := len(s.entered); n != 1 {
			t.Errorf("the request was handled %d times", n)
		}
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	forEachMessenger(t, func(t line) {
		s := newStuckHandler()
		serve(t, t.listener, "alpha", s.handle)
		ctx, cancel := context.WithCancelCause(t.ctx)
		cause := errors.New("enough")
		go func() {
			s.enter(t)
			cancel(cause)
		}()
		_, err := t.caller.Call(ctx, "alpha", nil)
		wantError(t, err, cause)
		s.release(t, "to nobody")
		_, err = t.caller.Call(ctx, "alpha", nil)
		wantError(t, err, cause)
	})
}

func TestStopEndsHandlersAndWaitsForThem(t *testing.T) {
	forEachMessenger(t, func(t line) {
		s := newStuckHandler()
		stop, err := t.listener.Serve("alpha", s.handle)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan string, 1)
		go func() {
			answer, err := t.caller.Call(t.ctx, "alpha", nil)
			answers <- fmt.Sprint(string(answer), err)
		}()
		handlerCtx := s.enter(t)
		impatient, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
		defer cancel()
		wantError(t, stop(impatient), context.DeadlineExceeded)
		<-handlerCtx.Done()
		_, err = t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrNoListener)
		s.release(t, "the last answer")
		for range 2 {
			if err := stop(t.ctx); err != nil {
				t.Error(err)
			}
		}
		if got := <-answers; got != "the last answer<nil>" {
			t.Errorf("the caller got %q", got)
		}
	})
}

func TestAClosedMessengerSaysSo(t *testing.T) {
	forEachMessenger(t, func(t line) {
		s := newStuckHandler()
		stop := serve(t, t.listener, "alpha", s.handle)
		go func() {
			s.enter(t)
			t.hangUpCall()
		}()
		_, err := t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrClosed)
		_, err = t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrClosed)
		_, err = t.caller.Serve("beta", echo)
		wantError(t, err, kvbucket.ErrClosed)
		s.release(t, "to nobody")
		stop()
	})
}

func TestRequestsThatAreTooManyAreRefused(t *testing.T) {
	forEachMessenger(t, func(t line) {
		s := newStuckHandler()
		serve(t, t.listener, "alpha", s.handle)
		var callers sync.WaitGroup
		for range kvbucket.MaxHandlers {
			callers.Go(func() {
				if answer, err := t.caller.Call(t.ctx, "alpha", nil); err != nil || string(answer) != "done" {
					t.Errorf("got %q, error %v", answer, err)
				}
			})
		}
		for range kvbucket.MaxHandlers {
			s.enter(t)
		}
		_, err := t.caller.Call(t.ctx, "alpha", nil)
		wantError(t, err, kvbucket.ErrOverloaded)
		for range kvbucket.MaxHandlers {
			s.release(t, "done")
		}
		callers.Wait()
		go func() { s.release(t, "again") }()
		if answer, err := t.caller.Call(t.ctx, "alpha", nil); err != nil || string(answer) != "again" {
			t.Errorf("afterwards got %q, error %v", answer, err)
		}
	})
}

func TestMemoryMessengerServesAnAddressOnce(t *testing.T) {
	m := kvbucket.NewMemoryMessenger()
	stop := serve(t, m, "alpha", echo)
	_, err := m.Serve("alpha", echo)
	wantError(t, err, kvbucket.ErrInvalidAddress)
	stop()
	serve(t, m, "alpha", echo)
	stop() // of the earlier listener
	if _, err := m.Call(t.Context(), "alpha", nil); err != nil {
		t.Error(err)
	}
}

func TestMemoryMessengerWorksUnderAFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvbucket.NewMemoryMessenger()
		serve(t, m, "alpha", func(ctx context.Context, request []byte) []byte {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return request
		})
		began := time.Now()
		if answer, err := m.Call(t.Context(), "alpha", []byte("slowly")); err != nil || string(answer) != "slowly" {
			t.Errorf("got %q, error %v", answer, err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("took %v", took)
		}
	})
}
