package kvbucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxRead bounds a read whose context ends later or never; like maxUpdate, it
	// outlasts an election.
	maxRead = 15 * time.Second
	// readAttempt bounds one request of a read.
	readAttempt = 2 * time.Second
)

// Headers of a stored message: of an edgehost write, and of a deletion.
const (
	headerOperation        = nats.MsgIdHdr
	headerExpectedRevision = nats.ExpectedLastSubjSeqHdr
	headerMarker           = "KV-Operation"
	headerMarkerReason     = "Nats-Marker-Reason"
)

// JetStream is a Bucket in a NATS JetStream KV bucket, which the nats tools read
// too. Values survive as the server's sync setting says; see [ServerConfig].
//
// Reads are answered by the leader of the bucket's stream, never by direct get,
// which any replica may answer and which ADR-8 allows to go backwards. They stay
// hints all the same: a leader that was cut off goes on answering for 10 to 20 s.
type JetStream struct {
	conn   *Conn
	name   string
	stream jetstream.Stream
}

var _ Bucket = (*JetStream)(nil)

// A stored entry is one with what the store keeps beside it.
type stored struct {
	Entry
	id       string // of the write
	expected string // revision that the write followed on; empty if it was blind
	deleted  bool   // the newest message is an operator's deletion
}

// Get implements [Bucket]. It ends after 15 s if ctx has not ended before, and at
// once if the connection has been lost for 5 s.
func (b *JetStream) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	s, err := b.read(ctx, key)
	return s.Entry, err
}

// Keys implements [Bucket]. It asks the stream's leader, and is made for tools: the
// server collects the keys at every call.
func (b *JetStream) Keys(ctx context.Context, pattern string) ([]string, error) {
	if err := checkPattern(pattern); err != nil {
		return nil, err
	}
	var info *jetstream.StreamInfo
	err := b.retry(ctx, func(ctx context.Context) (err error) {
		if !b.conn.nc.IsConnected() {
			return errNotSent
		}
		info, err = b.stream.Info(ctx, jetstream.WithSubjectFilter(b.subject(pattern)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: keys %q", err, pattern)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		if key := b.key(subject); key != selfTestKey {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// subject returns the subject of a key or pattern (ADR-8).
func (b *JetStream) subject(key string) string { return "$KV." + b.name + "." + key }

// key is the inverse of subject.
func (b *JetStream) key(subject string) string {
	return strings.TrimPrefix(subject, b.subject(""))
}

// A messageRequest asks a stream's leader for one message: the last of one subject,
// or the first at or after a sequence whose subject matches.
type messageRequest struct {
	LastOf   string `json:"last_by_subj,omitempty"`
	Sequence uint64 `json:"seq,omitempty"`
	NextOf   string `json:"next_by_subj,omitempty"`
}

type messageResponse struct {
	Error   *apiError `json:"error"`
	Message struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// read returns the newest entry of key as the leader knows it.
func (b *JetStream) read(ctx context.Context, key string) (stored, error) {
	s, err := b.fetch(ctx, messageRequest{LastOf: b.subject(key)})
	if err == nil && s.deleted {
		err = ErrNotFound
	}
	if err != nil {
		return s, fmt.Errorf("%w: %q", err, key)
	}
	return s, nil
}

// fetch asks the leader for a message.
func (b *JetStream) fetch(ctx context.Context, request messageRequest) (s stored, err error) {
	msg := nats.NewMsg("$JS.API.STREAM.MSG.GET." + streamName(b.name))
	if msg.Data, err = json.Marshal(request); err != nil {
		return stored{}, err
	}
	err = b.retry(ctx, func(ctx context.Context) (err error) {
		s, err = b.fetchOnce(ctx, msg)
		return err
	})
	return s, err
}

// retry calls read until it succeeds, fails for good, or its time is over. The error
// is one of Get's.
func (b *JetStream) retry(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxRead)
	defer cancel()
	for attempt := 0; ; attempt++ {
		attemptCtx, cancel := context.WithTimeout(ctx, readAttempt)
		err := read(attemptCtx)
		cancel()
		switch {
		case err == nil, errors.Is(err, ErrNotFound):
			return err
		case b.conn.life.Err() != nil:
			return ErrClosed
		case !transient(err), b.conn.outage() > outageGrace:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if waitErr := wait(ctx, backoff(attempt)); waitErr != nil {
			return fmt.Errorf("%w: %w: %w", ErrUnavailable, waitErr, err)
		}
	}
}

func (b *JetStream) fetchOnce(ctx context.Context, msg *nats.Msg) (stored, error) {
	reply, err := b.conn.exchange(ctx, msg)
	if err != nil {
		return stored{}, err
	}
	var response messageResponse
	if err := json.Unmarshal(reply.Data, &response); err != nil {
		return stored{}, err
	}
	if e := response.Error; e != nil && e.Code == codeNoMessage {
		return stored{}, ErrNotFound
	} else if e != nil {
		return stored{}, e
	}
	return b.decode(&response)
}

func (b *JetStream) decode(r *messageResponse) (stored, error) {
	m := &r.Message
	s := stored{Entry: Entry{Key: b.key(m.Subject), Value: m.Data, Revision: Revision(m.Sequence), Created: m.Time}}
	if len(m.Header) == 0 {
		return s, nil
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return stored{}, err
	}
	s.id, s.expected, s.deleted = header.Get(headerOperation), header.Get(headerExpectedRevision), isDeletion(header)
	if s.deleted {
		s.Value = nil
	}
	return s, nil
}

// isDeletion reports whether a message stands for the deletion of its key, by the
// KV client (ADR-8) or by the server (ADR-48).
func isDeletion(h nats.Header) bool {
	op := h.Get(headerMarker)
	return op == "DEL" || op == "PURGE" || h.Get(headerMarkerReason) != ""
}

// follows reports whether the entry's write found the key at the given revision.
func (s *stored) follows(r Revision) bool {
	return s.expected == strconv.FormatUint(uint64(r), 10)
}

// transient reports whether a read may succeed if it is made again.
func transient(err error) bool {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false
	}
	e, ok := errors.AsType[*apiError](err)
	return !ok || judgeCode(e) == refused
}
