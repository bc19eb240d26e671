package kvbucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// maxUpdate bounds an Update whose context ends later or never. It outlasts
	// several elections (4–9 s each) and is far below the duplicate window, after
	// which sending the same write again would no longer be recognised.
	maxUpdate       = 30 * time.Second
	duplicateWindow = 2 * time.Minute
	// The first attempt waits this long for its acknowledgement, each later one
	// twice as long as the one before, so that a slow link gets its answer too.
	firstAttempt = time.Second
	maxAttempt   = 8 * time.Second
	// maxExplain bounds the reads that explain a conflict after a lost
	// acknowledgement.
	maxExplain = 5
)

// Update implements [Bucket]. It ends after 30 s if ctx has not ended before.
// Without a connection it waits up to 5 s from the loss for the connection to come
// back; later calls fail at once with ErrUnavailable. A write that may have been
// sent is pursued longer, to the end of ctx or of the 30 s.
func (b *JetStream) Update(ctx context.Context, key string, value []byte, last Revision) (Revision, error) {
	if err := checkWrite(key, value); err != nil {
		return 0, err
	}
	revision, doubt, err := b.update(ctx, key, value, last)
	b.conn.metrics.count(err, doubt)
	return revision, err
}

// A write is one Update under way: what is sent, the same bytes each time, and
// what is known so far.
type write struct {
	key   string
	id    string
	last  Revision
	msg   *nats.Msg
	doubt bool  // an attempt got lost, so the write may have been applied
	err   error // of the newest attempt
}

// update writes without counting and without checking the key. doubt says that an
// acknowledgement got lost on the way.
func (b *JetStream) update(ctx context.Context, key string, value []byte, last Revision) (_ Revision, doubt bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxUpdate)
	defer cancel()
	w := b.newWrite(key, value, last)
	for attempt := 0; ; attempt++ {
		v, revision := b.attempt(ctx, w, attempt)
		switch {
		case v == applied:
			return revision, w.doubt, nil
		case v == conflicted && w.doubt:
			revision, err = b.explain(ctx, w)
			return revision, true, err
		case v == conflicted:
			return 0, false, fmt.Errorf("%w: %q is not at %d: %w", ErrConflict, key, last, w.err)
		case v == rejected && !w.doubt, v == unsent && !w.doubt && b.conn.outage() > outageGrace:
			return 0, false, w.failure(b.conn)
		}
		if err := wait(ctx, backoff(attempt)); err != nil {
			w.err = fmt.Errorf("%w after: %w", err, w.err)
			return 0, w.doubt, w.failure(b.conn)
		}
		if b.conn.life.Err() != nil {
			return 0, w.doubt, w.failure(b.conn)
		}
	}
}

// newWrite makes the publish that the KV client would make for an update (ADR-8),
// plus the message id that the client cannot set. By it the server recognises a
// repetition, and explain the write.
func (b *JetStream) newWrite(key string, value []byte, last Revision) *write {
	w := &write{key: key, id: rand.Text(), last: last, msg: nats.NewMsg(b.subject(key))}
	w.msg.Data = value
	w.msg.Header[headerOperation] = []string{w.id}
	w.msg.Header[headerExpectedRevision] = []string{strconv.FormatUint(uint64(last), 10)}
	return w
}

// attempt sends the write once more and notes what is known then.
func (b *JetStream) attempt(ctx context.Context, w *write, attempt int) (verdict, Revision) {
	attemptCtx, cancel := context.WithTimeout(ctx, min(maxAttempt, firstAttempt<<min(attempt, 8)))
	defer cancel()
	v, revision, err := judge(b.conn.exchange(attemptCtx, w.msg))
	w.doubt = w.doubt || v == lost
	if w.err == nil || ctx.Err() == nil { // an end of ctx says less than the error before
		w.err = err
	}
	return v, revision
}

// explain returns the outcome of a write that lost an acknowledgement and then got
// a conflict. That is no verdict yet. A replicated stream looks for the message id
// before it compares revisions, and answers a repetition as a duplicate; a stream
// on one server compares first (nats-server 2.15.3, processJetStreamMsg), and
// either may have forgotten the id in a restart. But the newest message tells: it
// is ours, or it followed directly on the revision that ours had to follow on, so
// that ours never did. Otherwise others have written since, and only a trace of
// the write in the value could tell.
func (b *JetStream) explain(ctx context.Context, w *write) (Revision, error) {
	for attempt := range maxExplain {
		newest, err := b.read(ctx, w.key)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return 0, fmt.Errorf("%w: %q: %w", ErrUnknown, w.key, err)
		case newest.id == w.id:
			return newest.Revision, nil
		case newest.follows(w.last):
			return 0, fmt.Errorf("%w: %q is not at %d: %w", ErrConflict, w.key, w.last, w.err)
		case newest.Revision > w.last:
			return 0, fmt.Errorf("%w: %q has been changed more than once since %d", ErrUnknown, w.key, w.last)
		}
		// The read is older than the conflict.
		if wait(ctx, backoff(attempt+4)) != nil {
			break
		}
	}
	return 0, fmt.Errorf("%w: %q: reads are older than the conflict", ErrUnknown, w.key)
}

// failure returns the error of a write that ends without a verdict.
func (w *write) failure(c *Conn) error {
	kind := ErrUnavailable
	apiErr, isAPI := errors.AsType[*apiError](w.err)
	switch {
	case w.doubt:
		kind = ErrUnknown
	case c.life.Err() != nil:
		return fmt.Errorf("%w: %q", ErrClosed, w.key)
	case errors.Is(w.err, nats.ErrMaxPayload), isAPI && apiErr.Code == codeMessageTooLarge:
		kind = ErrTooLarge
	}
	if c.life.Err() != nil {
		return fmt.Errorf("%w: %q: %w", kind, w.key, ErrClosed)
	}
	return fmt.Errorf("%w: %q: %w", kind, w.key, w.err)
}
