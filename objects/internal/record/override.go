package record

import "time"

// Override is an operator's order: the breaker is to be open, or closed, for a
// time, whatever calls come to. It ends by itself, so that none is forgotten.
type Override struct {
	Op     string // the order; repeating it changes nothing
	State  string // Open or Closed
	Reason string
	For    time.Duration // zero: the state changes, and goes its way from there
}

// Urgent implements [Command].
func (Override) Urgent() bool { return true }

// Forced is an order that is in force, or was the last one.
type Forced struct {
	Op      string `json:"op"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	TTL     Span   `json:"ttl"`
	Running Clock  `json:"running"`
}

// active reports whether the order keeps the breaker in state at now.
func (f *Forced) active(state string, now Now) bool {
	return f != nil && f.State == state && f.Remaining(now) > 0
}

// Remaining returns how long the order stays in force at most.
func (f *Forced) Remaining(now Now) time.Duration {
	return max(0, time.Duration(f.TTL)-f.Running.Since(now))
}

// override carries an order out. After an opening for a time the breaker probes, as
// after any cooldown.
func (o *Object) override(c Override) (changed bool) {
	if o.Forced != nil && o.Forced.Op == c.Op {
		return false
	}
	if c.State == Closed {
		o.close()
	} else {
		o.enter(Open)
		o.Probe = nil
		o.Breaker.Run, o.Breaker.Returned = 0, 0
		o.Breaker.Cooldown, o.Breaker.Cooling = Span(c.For), started()
	}
	o.Forced = &Forced{Op: c.Op, State: c.State, Reason: c.Reason, TTL: Span(c.For), Running: started()}
	return true
}
