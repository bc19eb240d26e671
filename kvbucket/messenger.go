package kvbucket

import (
	"context"
	"errors"
	"fmt"
)

// The errors of [Messenger.Call] that say more than that the context ended.
var (
	// ErrNoListener: nobody serves the address. The request was not handled.
	ErrNoListener = errors.New("kvbucket: nobody serves the address")
	// ErrNoReceipt: two receipts in a row are missing. The request may have been
	// delivered, or may yet be.
	ErrNoReceipt = errors.New("kvbucket: no receipt for the request")
	// ErrOverloaded: the listener has received the request, but has too many
	// others. It was not handled.
	ErrOverloaded = errors.New("kvbucket: the listener is overloaded")
	// ErrInvalidAddress: the address is not one part of a key, as [Escape] returns
	// it, is longer than MaxAddress, or is served in this process already.
	ErrInvalidAddress = errors.New("kvbucket: invalid address")
)

// MaxMessage bounds a request and an answer, in bytes.
const MaxMessage = MaxValue

// MaxAddress bounds an address, in bytes.
const MaxAddress = 512

// A Messenger carries requests between hosts. Requests and answers may be lost,
// repeated, delayed and reordered: what must hold cannot rest on them. Two
// implementations pass the same suite: one on a NATS connection, and
// [MemoryMessenger].
//
// An address is one part of a key, as [Escape] returns it. Whoever serves it has to
// make sure that nobody else does: all of them would handle each request.
type Messenger interface {
	// Serve hands every request that is sent to address to handle, each on a
	// goroutine of its own, and answers with what it returns. The receipt goes
	// out before. A panic of handle is not caught. The context of handle ends
	// when stop is called; stop returns once no handle runs any more, or with the
	// error of its own context, and may be called again. Errors:
	// ErrInvalidAddress, ErrUnavailable, ErrClosed.
	Serve(address string, handle func(ctx context.Context, request []byte) []byte) (stop func(context.Context) error, err error)

	// Call sends request to address and returns the answer. The listener
	// acknowledges the receipt at once and may answer much later, or never, if it
	// is lost in between: ctx should end. A request whose receipt does not come
	// within 500 ms is sent once more. Errors: ErrNoListener, ErrNoReceipt,
	// ErrOverloaded, ErrTooLarge (the request, which was not sent, or the
	// answer), ErrInvalidAddress, ErrUnavailable (not connected: not sent),
	// ErrClosed, the context's.
	Call(ctx context.Context, address string, request []byte) ([]byte, error)
}

func checkAddress(address string) error {
	if !validPart(address) || len(address) > MaxAddress {
		return fmt.Errorf("%w: %q", ErrInvalidAddress, address)
	}
	return nil
}

// checkRequest looks for what keeps a request from being sent.
func checkRequest(ctx context.Context, address string, request []byte) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	if len(request) > MaxMessage {
		return fmt.Errorf("%w: a request of %d bytes, at most %d are allowed", ErrTooLarge, len(request), MaxMessage)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("kvbucket: request to %q: %w", address, context.Cause(ctx))
	}
	return nil
}

func checkAnswer(address string, answer []byte) ([]byte, error) {
	if len(answer) > MaxMessage {
		return nil, fmt.Errorf("%w: an answer of %d bytes from %q, at most %d are allowed", ErrTooLarge, len(answer), address, MaxMessage)
	}
	return answer, nil
}
