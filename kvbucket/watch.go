package kvbucket

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// heartbeat is how often an idle consumer shows that it is alive, and
	// maxSilence after which it counts as dead: well within the 5 s in which a host
	// has to hear of a change.
	heartbeat  = time.Second
	maxSilence = 5 * heartbeat / 2
	// pollEvery is how often an idle watch asks the leader for what its consumer
	// should have delivered: consumers have been silent while alive.
	pollEvery = 7 * heartbeat / 2
	// maxPolled bounds what one poll reads one by one.
	maxPolled = 256
	// A consumer that nobody listens to is removed by the server after abandoned,
	// if the watch could not remove it.
	abandoned = 5 * time.Second
	// deleteTimeout bounds the removal of a consumer.
	deleteTimeout = time.Second
	// A watch that breaks early waits longer and longer, up to maxRewatch.
	firstRewatch = 50 * time.Millisecond
	maxRewatch   = 5 * time.Second
)

// errBroken ends one consumer of a watch.
var errBroken = errors.New("the watch is broken")

// Watch implements [Bucket]. It notices a consumer that died within 2.5 s, a lost
// connection sooner, and asks the leader every 3 s besides, which is one small
// request. Keys that an operator deletes are not reported.
func (b *JetStream) Watch(ctx context.Context, pattern string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if err := checkPattern(pattern); err != nil {
			b.conn.log.Error("watch of an invalid pattern", "err", err)
			return
		}
		ctx, cancel := until(ctx, b.conn.life)
		defer cancel()
		w := &watch{bucket: b, subject: b.subject(pattern), yield: yield}
		for failures := 0; ; failures++ {
			began := time.Now()
			err := w.run(ctx)
			if w.stopped || ctx.Err() != nil {
				return
			}
			b.conn.log.Debug("watch is set up again", "pattern", pattern, "err", err)
			if time.Since(began) > maxRewatch {
				failures = 0
			}
			if wait(ctx, rewatchDelay(failures)) != nil {
				return
			}
		}
	}
}

func rewatchDelay(failures int) time.Duration {
	bound := maxRewatch
	if doubled := firstRewatch << min(failures, 16); doubled < bound {
		bound = doubled
	}
	return 1 + rand.N(bound)
}

// A watch is one call of Watch. Its loop runs in the caller's goroutine.
type watch struct {
	bucket  *JetStream
	subject string
	yield   func(Entry) bool
	stopped bool // yield wants no more

	// Of the consumer that runs now:
	seen      Revision  // newest that was yielded
	delivered uint64    // messages that the consumer has sent
	heard     time.Time // when it last sent anything
	polled    time.Time
	ahead     bool // the poll found what the consumer has not sent
}

// run sets up a consumer, which begins with what exists, and yields what it
// delivers until it breaks or ctx ends.
func (w *watch) run(ctx context.Context) error {
	c := w.bucket.conn
	if !c.nc.IsConnected() {
		return errNotSent
	}
	ctx, cancel := until(ctx, c.currentSession())
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is gone
	// The name is chosen here, so that a consumer whose creation seemed to fail can
	// be removed too.
	name := inbox[len(nats.InboxPrefix):]
	defer w.remove(ctx, name)
	if _, err := c.js.CreatePushConsumer(ctx, streamName(w.bucket.name), w.consumer(name, inbox)); err != nil {
		return err
	}
	w.seen, w.delivered, w.heard, w.polled, w.ahead = 0, 0, time.Now(), time.Now(), false
	return w.loop(ctx, sub)
}

func (w *watch) consumer(name, inbox string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Name:              name,
		DeliverSubject:    inbox,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     w.subject,
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        1,
		IdleHeartbeat:     heartbeat,
		FlowControl:       true,
		InactiveThreshold: abandoned,
		MemoryStorage:     true,
		Replicas:          1,
	}
}

// remove deletes a consumer, if the connection still stands; otherwise the server
// does it.
func (w *watch) remove(ctx context.Context, name string) {
	c := w.bucket.conn
	if !c.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	if err := c.js.DeleteConsumer(ctx, streamName(w.bucket.name), name); err != nil {
		c.log.Debug("a watch's consumer was not removed", "err", err)
	}
}

// loop takes messages for a heartbeat's time, then looks whether all is well.
func (w *watch) loop(ctx context.Context, sub *nats.Subscription) error {
	for {
		before := w.delivered
		if err := w.take(ctx, sub); err != nil {
			return err
		}
		idle := w.delivered == before
		switch {
		case time.Since(w.heard) > maxSilence, idle && w.ahead:
			return errBroken
		case idle && time.Since(w.polled) > pollEvery-rand.N(heartbeat):
			if err := w.poll(ctx); err != nil {
				return err
			}
		}
	}
}

// take handles what arrives within one heartbeat.
func (w *watch) take(ctx context.Context, sub *nats.Subscription) error {
	tick, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	for {
		msg, err := sub.NextMsgWithContext(tick)
		switch {
		case err == nil:
		case tick.Err() != nil && ctx.Err() == nil:
			return nil
		default:
			return err
		}
		err = w.handle(msg)
		w.heard = time.Now() // the reader's own time is no silence of the consumer
		if err != nil {
			return err
		}
	}
}

func (w *watch) handle(msg *nats.Msg) error {
	if msg.Header.Get("Status") == "100" && len(msg.Data) == 0 {
		return w.handleControl(msg)
	}
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != w.delivered+1 {
		return errBroken // a message got lost
	}
	w.delivered++
	w.ahead = false
	return w.deliver(isDeletion(msg.Header), Entry{
		Key: w.bucket.key(msg.Subject), Value: msg.Data, Revision: Revision(meta.Sequence.Stream), Created: meta.Timestamp,
	})
}

// handleControl answers flow control, without which the consumer stalls, and looks
// whether the newest message before a heartbeat got lost.
func (w *watch) handleControl(msg *nats.Msg) error {
	reply := msg.Reply
	if reply == "" {
		reply = msg.Header.Get("Nats-Consumer-Stalled")
	}
	if reply != "" {
		return w.bucket.conn.nc.Publish(reply, nil)
	}
	if last := msg.Header.Get("Nats-Last-Consumer"); last != "" && last != strconv.FormatUint(w.delivered, 10) {
		return errBroken
	}
	return nil
}

// deliver yields an entry that is newer than those before.
func (w *watch) deliver(deleted bool, e Entry) error {
	if e.Revision <= w.seen {
		return nil
	}
	w.seen = e.Revision
	if deleted || e.Key == selfTestKey {
		return nil
	}
	if w.stopped = !w.yield(e); w.stopped {
		return errBroken
	}
	return nil
}

// poll yields what the leader has and the consumer has not sent.
func (w *watch) poll(ctx context.Context) error {
	w.polled = time.Now()
	for range maxPolled {
		s, err := w.bucket.fetch(ctx, messageRequest{Sequence: uint64(w.seen) + 1, NextOf: w.subject})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		w.ahead = true
		if err := w.deliver(s.deleted, s.Entry); err != nil {
			return err
		}
	}
	return nil
}
