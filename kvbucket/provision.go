package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// A BucketConfig names a bucket.
type BucketConfig struct {
	// Name is made of letters, digits, "-" and "_".
	Name string
	// Replicas is on how many servers of a cluster each value is kept: 3 in
	// production, 1 with a single server. A bucket that is not there is created
	// with it, and one that is there must have it. Zero takes an existing bucket
	// as it is and creates none.
	Replicas int
}

// Bucket opens a bucket, which it creates if cfg says how. It checks the settings of
// an existing one, and by two writes to a key of its own that the store refuses a
// stale revision. The bucket stays usable until the connection closes. Errors say
// what to change; ErrNoBucket is that of a bucket that is not there and not created.
func (c *Conn) Bucket(ctx context.Context, cfg BucketConfig) (*JetStream, error) {
	if !validBucketName(cfg.Name) {
		return nil, fmt.Errorf("kvbucket: %q is no bucket name: use letters, digits, - and _", cfg.Name)
	}
	stream, err := c.stream(ctx, cfg)
	if err != nil {
		return nil, err
	}
	have := stream.CachedInfo().Config
	if wrong := differences(have, cfg); len(wrong) > 0 {
		return nil, fmt.Errorf("kvbucket: bucket %q cannot be used: %s (change it with `nats stream edit %s`, or use another bucket)",
			cfg.Name, strings.Join(wrong, ", "), have.Name)
	}
	b := &JetStream{conn: c, name: cfg.Name, stream: stream}
	if err := b.selfTest(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// stream opens the bucket's stream. It does not go through CreateKeyValue, which
// turns direct get back on in a bucket that has it off.
func (c *Conn) stream(ctx context.Context, cfg BucketConfig) (jetstream.Stream, error) {
	stream, err := c.js.Stream(ctx, streamName(cfg.Name))
	switch {
	case err == nil:
		return stream, nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("kvbucket: bucket %q: %w", cfg.Name, err)
	case cfg.Replicas == 0:
		return nil, fmt.Errorf("%w: %q, and it is created only with a number of replicas", ErrNoBucket, cfg.Name)
	}
	stream, err = c.js.CreateStream(ctx, streamConfig(cfg))
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		stream, err = c.js.Stream(ctx, streamName(cfg.Name)) // somebody else was faster
	}
	if err != nil {
		return nil, fmt.Errorf("kvbucket: create bucket %q with %d replicas: %w", cfg.Name, cfg.Replicas, err)
	}
	return stream, nil
}

// streamConfig returns the stream of a KV bucket (ADR-8) without direct get, so that
// the nats tools read from the leader too. Nothing in it expires and nothing is
// evicted: a full store refuses writes instead of forgetting owners.
func streamConfig(cfg BucketConfig) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              streamName(cfg.Name),
		Description:       "edgehost",
		Subjects:          []string{"$KV." + cfg.Name + ".>"},
		Storage:           jetstream.FileStorage,
		Replicas:          cfg.Replicas,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Discard:           jetstream.DiscardNew,
		Duplicates:        duplicateWindow,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

// differences returns what keeps a stream from holding the bucket.
func differences(have jetstream.StreamConfig, cfg BucketConfig) []string {
	want := streamConfig(cfg)
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	subjects := strings.Join(have.Subjects, " ")
	check(subjects == want.Subjects[0], "its subjects are %q, not %q", subjects, want.Subjects[0])
	check(cfg.Replicas == 0 || have.Replicas == cfg.Replicas, "it has %d replicas, not %d", have.Replicas, cfg.Replicas)
	check(have.MaxMsgsPerSubject == 1, "its history is %d, not 1", have.MaxMsgsPerSubject)
	check(have.Storage == jetstream.FileStorage, "its storage is %s, not file", have.Storage)
	check(have.Discard == jetstream.DiscardNew, "it discards old values when full, instead of new ones")
	check(have.MaxAge == 0, "its values expire after %v", have.MaxAge)
	check(have.MaxMsgSize < 0 || have.MaxMsgSize >= MaxValue+maxEnvelope, "its values may have %d bytes, not %d", have.MaxMsgSize, MaxValue+maxEnvelope)
	check(have.Duplicates >= duplicateWindow, "its duplicate window is %v, not %v", have.Duplicates, duplicateWindow)
	check(have.PersistMode == jetstream.DefaultPersistMode, "it acknowledges writes before it stores them")
	check(have.Mirror == nil && len(have.Sources) == 0, "it is fed by another stream")
	check(have.SubjectTransform == nil, "it stores values under other subjects")
	check(!have.Sealed && !have.NoAck, "it is sealed or does not acknowledge")
	return wrong
}

// selfTest changes the reserved key and then tries to change it again from the
// revision before. The key stays, so that repeating the test adds nothing.
func (b *JetStream) selfTest(ctx context.Context) error {
	var before Revision
	value := []byte("written by " + b.conn.name + " to see that a stale revision is refused")
	_, err := Modify(ctx, unchecked{b}, selfTestKey, func(old Entry) ([]byte, error) {
		before = old.Revision
		return value, nil
	})
	if err != nil {
		return fmt.Errorf("kvbucket: self-test of bucket %q: %w", b.name, err)
	}
	_, _, err = b.update(ctx, selfTestKey, value, before)
	switch {
	case errors.Is(err, ErrConflict):
		return nil
	case err == nil:
		return fmt.Errorf("kvbucket: bucket %q accepted two writes from one revision: its server cannot be used", b.name)
	default:
		return fmt.Errorf("kvbucket: self-test of bucket %q: %w", b.name, err)
	}
}

// unchecked is the bucket without checks of keys and without counting.
type unchecked struct{ *JetStream }

// Get implements [Bucket].
func (u unchecked) Get(ctx context.Context, key string) (Entry, error) {
	s, err := u.read(ctx, key)
	return s.Entry, err
}

// Update implements [Bucket].
func (u unchecked) Update(ctx context.Context, key string, value []byte, last Revision) (Revision, error) {
	revision, _, err := u.update(ctx, key, value, last)
	return revision, err
}

// streamName returns the name of a bucket's stream (ADR-8).
func streamName(bucket string) string { return "KV_" + bucket }

func validBucketName(name string) bool {
	return validPart(name) && !strings.ContainsAny(name, "=/") && len(name) <= 200
}
