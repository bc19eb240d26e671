// Package record holds the records that hosts share and every transition they can
// make. A transition is a function of the record, a command and a [Now]: it reads
// no clock, draws no random number and does no I/O, so that tables, a model and a
// simulation can drive it, and so that a command may be applied again to a newer
// record after its first attempt was refused by the store.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// Schema is the newest version of the records that this package reads and the
// one that it writes.
const Schema = 1

// ErrSchema says that a record was written by a newer version of the program. Such
// a record must not be written over: what this version does not know would be
// lost.
var ErrSchema = errors.New("record: written by a newer version")

// A Now is everything a transition may know of the moment in which it happens.
type Now struct {
	// Mono is the owner's monotonic clock. Readings of different owners, or of one
	// owner before and after a restart, cannot be compared.
	Mono time.Duration
	// Micros is the wall clock in microseconds since 1970, the floor for new
	// fences. Zero if the clock is not to be trusted.
	Micros uint64
	// Jitter is a random number in [0, 1).
	Jitter float64
}

// A Command asks for one transition. Commands are plain data: they can be sent to
// an owner elsewhere. Applying one twice has the effect of applying it once,
// because it names what it changes: an operation, a fence, a generation.
type Command interface {
	// Urgent reports whether a full mailbox takes the command all the same: one
	// that ends or keeps up something granted before. Refusing those under load
	// would turn load into lost leases.
	Urgent() bool
}

// Resign gives up the ownership of the record.
type Resign struct{}

// Urgent implements [Command].
func (Resign) Urgent() bool { return true }

// Attend makes sure that the record has an owner who is alive, and does nothing
// else: what passes of a cooldown is stored by owners only.
type Attend struct{}

// Urgent implements [Command].
func (Attend) Urgent() bool { return false }

// An Answer is what a command came to.
type Answer struct {
	Code       abi.Code // zero if the command did what it asks for
	Fence      uint64   // of the lease or probe; zero for none
	Generation uint64   // of the breaker
	Attempt    int      // the attempt or renewal that is recorded, which may be an earlier one
	RetryAfter time.Duration
}

// A Record is a value that one owner at a time changes: an [Object] or a [Page].
type Record interface {
	// Head returns the part that all records have.
	Head() *Header
	// Clone returns a copy that shares nothing with the record but past events.
	Clone() Record
	// Tick lets lapse what is over at now and reports whether the record must be
	// written, because something lapsed or because the elapsed times in the store
	// have fallen too far behind.
	Tick(now Now) bool
	// Apply makes a transition and reports whether the record changed. The caller
	// has called Tick for now.
	Apply(cmd Command, now Now) (Answer, bool)
	// Next returns the reading of Mono at which Tick has something to do, and
	// false if that is never.
	Next() (time.Duration, bool)
	// Encode returns the record as it is to be stored at now.
	Encode(now Now) ([]byte, error)
	// Commit starts the clocks of what has been granted since the record was
	// cloned, once the store has accepted it, and returns what happened since.
	Commit(now Now) []Event
	// Inherit takes over elapsed times from an older sight of the record, by the
	// same owner's clock: what has not changed since has been running since then. No
	// fence goes back.
	Inherit(seen Record, now Now)
}

// A Header is the part that every owned record has.
type Header struct {
	Schema int `json:"schema"`
	// Owner is the host that may change the record, with its incarnation; empty
	// if it was given up.
	Owner string `json:"owner,omitempty"`
	// Epoch counts the changes of ownership.
	Epoch uint64 `json:"epoch"`
	// Commit identifies the newest write and Previous the one before it. A writer
	// that lost an acknowledgement finds its own write here, even if one other
	// write came in between.
	Commit   string `json:"commit"`
	Previous string `json:"previous,omitempty"`
	// Reign is how long the owner had been it, at least, at the newest write.
	Reign Span `json:"reign,omitempty"`

	claimed bool          // by this host, which knows the rest:
	since   time.Duration // the reading of Mono when it claimed
	before  time.Duration // the reign of the owner before, if that has not resigned
}

// Head implements [Record].
func (h *Header) Head() *Header { return h }

// Claim makes owner the owner, in a new epoch.
func (h *Header) Claim(owner string, now Now) {
	h.before = math.MaxInt64
	if h.Owner != "" && h.Owner != owner {
		h.before = time.Duration(h.Reign)
	}
	h.Owner, h.Reign, h.claimed, h.since = owner, 0, true, now.Mono
	h.Epoch++
}

// measure brings Reign up to now, as the store is to have it.
func (h *Header) measure(now Now) {
	if h.claimed {
		h.Reign = Span(now.Mono - h.since)
	}
}

// resign gives the ownership up, so that the next host claims without asking.
func (h *Header) resign() bool {
	owned := h.Owner != ""
	h.Owner = ""
	return owned
}

// Stamp names the write that the record is about to be stored by.
func (h *Header) Stamp(commit string) {
	h.Schema = Schema
	h.Previous, h.Commit = h.Commit, commit
}

// An Event is something that happened to a record, for metrics and logs.
type Event struct {
	From, To string // the breaker's states, if they changed
	Probe    string // a probe's result, if it ended
}

// decode parses data into r unless a newer version has written it.
func decode(data []byte, r any) error {
	var head Header
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if head.Schema > Schema {
		return fmt.Errorf("%w: schema %d, this one knows up to %d", ErrSchema, head.Schema, Schema)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
