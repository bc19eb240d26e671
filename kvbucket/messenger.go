package kvbucket

import (
	"context"
	"errors"
)

// The errors of [Messenger.Call] that say more than that the context ended.
var (
	// ErrNoListener: nobody serves the address. The request was not delivered.
	ErrNoListener = errors.New("kvbucket: nobody serves the address")
	// ErrNoReceipt: two receipts in a row are missing. The request may have been
	// delivered, or may yet be.
	ErrNoReceipt = errors.New("kvbucket: no receipt for the request")
)

// A Messenger carries requests between hosts. Requests and answers may be lost,
// repeated, delayed and reordered: what must hold cannot rest on them. Two
// implementations pass the same suite: one on a NATS connection, and
// [MemoryMessenger].
type Messenger interface {
	// Serve hands every request that is sent to address to handle, each on a
	// goroutine of its own, and answers with what it returns. The receipt goes
	// out before. The context of handle ends when stop is called; stop returns
	// once no handle runs any more, or with the error of its own context.
	Serve(address string, handle func(ctx context.Context, request []byte) []byte) (stop func(context.Context) error, err error)

	// Call sends request to address and returns the answer. The listener
	// acknowledges the receipt at once and may answer much later; a request
	// whose receipt does not come within 500 ms is sent once more. Errors:
	// ErrNoListener, ErrNoReceipt, ErrUnavailable (not connected: not sent),
	// ErrClosed, the context's.
	Call(ctx context.Context, address string, request []byte) ([]byte, error)
}
