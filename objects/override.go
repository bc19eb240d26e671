package objects

import (
	"context"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// Trip opens the breaker of a dependency for d, whatever its calls come to; then
// one probe may go out, as after any cooldown. The reason is kept in the record.
// Trip returns after the commit. Errors: abi.Invalid, if d or reason is missing or d
// is above 24 h; a *Refusal of unavailable; those of ctx. After the last two the
// order may be carried out later.
func (h *Host) Trip(ctx context.Context, id ID, reason string, d time.Duration) error {
	if d <= 0 {
		return invalid("a breaker is tripped for a time above zero, not for %v", d)
	}
	return h.override(ctx, id, record.Override{State: record.Open, Reason: reason, For: d})
}

// Reset closes the breaker of a dependency. For d, failures do not open it again;
// zero means that they may at once. A host whose own calls fail in a row defers its
// callers even then. Errors: like those of Trip.
func (h *Host) Reset(ctx context.Context, id ID, reason string, d time.Duration) error {
	return h.override(ctx, id, record.Override{State: record.Closed, Reason: reason, For: d})
}

func (h *Host) override(ctx context.Context, id ID, cmd record.Override) error {
	if err := id.check(); err != nil {
		return err
	}
	if err := checkName("reason", cmd.Reason); err != nil {
		return err
	}
	if cmd.For < 0 || cmd.For > maxPolicyTime {
		return invalid("%v is not between 0 and %v", cmd.For, maxPolicyTime)
	}
	key := record.ObjectKey(id.Namespace, id.Name)
	if err := checkKey(key); err != nil {
		return err
	}
	if err := h.open(); err != nil {
		return err
	}
	cmd.Op = h.id()
	a := h.node(key, objectKind()).ask(ctx, cmd)
	switch {
	case a.Code == 0:
		return nil
	case a.Code == abi.Unavailable && ctx.Err() != nil:
		return contextError(ctx)
	}
	return a.refusal()
}
