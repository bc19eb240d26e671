package kvbucket

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Codes of the NATS server's error catalogue (server/errors.json) in answers to a
// publish with an expected revision, or to a read.
const (
	codeClusterNotAvailable = 10008
	codeClusterNotLeader    = 10009
	codeNoMessage           = 10037
	codeMessageTooLarge     = 10054
	codeWrongLastSequence   = 10071
	codeStoreFailed         = 10077
	codeDuplicateInProcess  = 10158
	codeLeaderNotReady      = 10163
	codeWriteInFlight       = 10164
	codeTooManyRequests     = 10167
)

// storeFull is part of the description of codeStoreFailed if a limit of the stream
// refused the write.
const storeFull = "maximum"

// A verdict is what one attempt to write has come to.
type verdict int

const (
	// applied: the write is in the store.
	applied verdict = iota
	// conflicted: the store compared the revision with the key's, which differs.
	conflicted
	// refused: this attempt was not applied, but the same one may be later.
	refused
	// unsent: as refused, since nothing left this process.
	unsent
	// lost: this attempt may have been applied, or may yet be.
	lost
	// rejected: this attempt was not applied, and another would not be either.
	rejected
)

// An apiError is a JetStream error in an answer.
type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// A pubAck is a stream's answer to a publish.
type pubAck struct {
	Error    *apiError `json:"error"`
	Sequence uint64    `json:"seq"`
}

// judge tells what an attempt has come to from its reply, or from the error of
// sending it. The revision is that of an applied write: for a duplicate the server
// answers with the sequence of the first.
func judge(reply *nats.Msg, err error) (verdict, Revision, error) {
	if err != nil {
		return judgeSending(err), 0, err
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return lost, 0, fmt.Errorf("acknowledgement: %w", err)
	}
	switch {
	case ack.Error != nil:
		return judgeCode(ack.Error), 0, ack.Error
	case ack.Sequence == 0:
		return lost, 0, errors.New("acknowledgement without a sequence")
	}
	return applied, Revision(ack.Sequence), nil
}

// judgeSending judges an attempt that got no answer. What is not known to have
// been held back counts as sent.
func judgeSending(err error) verdict {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		// No stream listens: it has no leader now.
		return refused
	case errors.Is(err, errNotSent), errors.Is(err, nats.ErrReconnectBufExceeded):
		return unsent
	case errors.Is(err, ErrClosed):
		return rejected
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrBadSubject):
		return rejected
	default:
		return lost
	}
}

func judgeCode(e *apiError) verdict {
	switch e.Code {
	case codeWrongLastSequence:
		return conflicted
	case codeWriteInFlight:
		// The text is that of a conflict, without a number, but nothing was
		// compared: another write of this key is on its way through a replicated
		// stream, perhaps an earlier attempt of this one.
		return refused
	case codeDuplicateInProcess, codeLeaderNotReady, codeClusterNotAvailable, codeClusterNotLeader, codeTooManyRequests:
		return refused
	case codeStoreFailed:
		if strings.Contains(e.Description, storeFull) {
			return rejected
		}
		// Another replica may have stored what this one could not.
		return lost
	default:
		return rejected
	}
}
