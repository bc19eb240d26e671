package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A Scope is whose idempotency keys are meant: two scopes never share a record,
// whatever the keys.
type Scope struct {
	// Namespace and Function name what is executed. Both are readable in the store.
	Namespace, Function string
	// Principal tells callers apart, so that none gets the answer of another who
	// happens to use the same key. Only a hash of it is kept. Empty means that
	// callers share their keys.
	Principal string
}

// ReservationOptions describe a reservation. Zero values mean the defaults.
type ReservationOptions struct {
	// TTL is how long the record is kept, at least, after its last change. The store
	// may drop it then, and the key may be used anew. Default 24 h, at most
	// MaxReservationTTL.
	TTL time.Duration
	// Hold is how long the reservation outlives its last renewal; the host renews
	// it three times as often. After it, another caller may take over. Default 15 s,
	// because a store election takes 4 to 9 s, or a third of TTL if that is less; at
	// least MinTTL and at most half of TTL.
	Hold time.Duration
	// AttachWait is how long to wait for the answer of an execution that is under
	// way. Default 0: not at all.
	AttachWait time.Duration
	// RetryUnknown lets the next caller execute again after an execution that was
	// cut off when it had effects, in place of the answer abi.OutcomeUnknown. The
	// option of the execution that was cut off counts.
	RetryUnknown bool
}

// MaxReservationTTL bounds the TTL of a reservation. The bucket of the answers has
// to keep them as long.
const MaxReservationTTL = 7 * 24 * time.Hour

// MaxInlineAnswer is the number of bytes up to which an answer is kept in the record
// of its reservation. Larger ones are kept in Config.Answers.
const MaxInlineAnswer = 4 << 10

// An Answer is what an execution has come to: the same bytes, or the same code, for
// every caller, for as long as the record is kept.
type Answer struct {
	// Data is what was given to Complete. It is shared by the callers who wait
	// together and must not be changed.
	Data []byte
	// Code is zero if Data is the answer. abi.OutcomeUnknown: the execution was cut
	// off after it had effects. abi.AnswerUnavailable: it was carried out, and its
	// answer could not be kept.
	Code abi.Code
}

// Reserve makes the caller the only one in the fleet who executes the request that
// key stands for, or says what came of it. It returns exactly one of:
//
//   - a reservation: the caller executes, and then calls Complete or GiveUp;
//   - an answer: the request has been executed before;
//   - an error: abi.Mismatch if the key was used with another fingerprint; a
//     *Refusal of in_progress if the execution is still under way after
//     opts.AttachWait; of unavailable if the store does not answer, after about a
//     second; of overloaded; abi.Invalid; those of ctx.
//
// The fingerprint says which requests are the same; only a hash of it is kept. A key
// is any 1 to abi.MaxName bytes.
//
// An execution whose host has died, or was cut off from the store, lapses 1.1 of its
// Hold after another host has first seen it, and the next caller takes over: unless
// it had effects, which makes abi.OutcomeUnknown the answer.
func (h *Host) Reserve(
	_ context.Context, _ Scope, _ string, _ []byte, _ ReservationOptions,
) (*Reservation, *Answer, error) {
	return nil, nil, fmt.Errorf("objects: reservations: %w", abi.Unsupported)
}

// A Reservation is the right to execute one request until it is completed, given up
// or lost. The host renews it. Its methods may be called from any number of
// goroutines.
type Reservation struct{}

// Context ends with the reservation: its cause is abi.ReservationLost if that was
// lost, context.Canceled after Complete or GiveUp. It carries the values of the
// context given to Reserve, not its end.
func (r *Reservation) Context() context.Context { return context.Background() }

// Err returns nil while the caller may execute, and abi.ReservationLost for ever
// after the reservation was lost, completed or given up. It looks at the clocks, so
// it is right even if a timer is late.
func (r *Reservation) Err() error { return abi.ReservationLost }

// Effects commits that the execution is about to have an effect that a second one
// would repeat. Only after it has returned nil may that be caused. All calls but the
// first cost nothing. Errors: abi.ReservationLost; a *Refusal of unavailable; those
// of ctx.
func (r *Reservation) Effects(_ context.Context) error {
	return fmt.Errorf("objects: effects: %w", abi.Unsupported)
}

// Complete makes data the answer, for this caller and for all who come after, and
// returns the answer that counts. It ends the reservation. If that was lost, the
// error unwraps to abi.ReservationLost, and the answer is the one of whoever took
// over, for whom Complete waits until ctx ends; it is nil if nobody took over, or
// none came in time. If data can be kept nowhere, the caller gets it all the same,
// and all others abi.AnswerUnavailable. Other errors: a *Refusal of unavailable, after
// which data may be the answer or not, and Complete may be called again; those of ctx.
func (r *Reservation) Complete(_ context.Context, _ []byte) (*Answer, error) {
	return nil, fmt.Errorf("objects: complete: %w", abi.Unsupported)
}

// GiveUp ends the reservation without an answer. The next caller executes, at once;
// unless there were effects, which makes abi.OutcomeUnknown the answer. After Complete
// it does nothing. Errors: abi.ReservationLost; a *Refusal of unavailable, after which
// the reservation lapses; those of ctx.
func (r *Reservation) GiveUp(_ context.Context) error {
	return fmt.Errorf("objects: give up: %w", abi.Unsupported)
}

// Key returns the idempotency key to send to a dependency with the call of the
// given number, counted by the caller: a hash of the scope, the key and the number,
// so that an execution that takes over sends the same. It has 32 characters of
// hexadecimal digits.
func (r *Reservation) Key(_ int) string { return "" }
