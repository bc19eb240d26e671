package objects

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// maxHops bounds how often one command is sent on, to another owner or to the
// store. Owners that change faster than commands travel would keep it going for
// ever.
const maxHops = 4

// silentAfter is how long an owner keeps a caller of another host in a lease's
// queue who does not ask again.
const silentAfter = 3 * askAgainEvery

// A message is a command to an owner on another host.
type message struct {
	Key     string          `json:"key"`
	Waits   bool            `json:"waits,omitempty"`
	Command json.RawMessage `json:"command"`
}

// A response is an owner's answer. Whoever is not the owner says so, and who is, if
// known. A superseded request gets no answer: its sender has asked again.
type response struct {
	Answer     record.Answer     `json:"answer"`
	Moved      bool              `json:"moved,omitempty"`
	Superseded bool              `json:"superseded,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Epoch      uint64            `json:"epoch,omitempty"`
	Revision   kvbucket.Revision `json:"revision,omitempty"`
	Record     json.RawMessage   `json:"record,omitempty"` // of a dependency, so that its caller acts on what it has caused
}

// address returns where an owner is reached.
func address(owner string) string { return kvbucket.Escape(owner) }

// A lead is what a node has heard of its record's owner elsewhere.
type lead struct {
	owner string
	epoch uint64
}

// elsewhere returns the owner to send commands to, empty if this host is to claim
// the record: nobody owns it, its owner did not answer, or hosts do not talk to
// each other.
func (n *node) elsewhere(r record.Record) string {
	if n.host.messenger == nil || r == nil {
		return ""
	}
	head := r.Head()
	n.mu.Lock()
	defer n.mu.Unlock()
	owner := head.Owner
	if n.heard.epoch > head.Epoch {
		owner = n.heard.owner
	}
	if owner == n.host.owner || owner == n.suspect {
		return ""
	}
	return owner
}

// suspected remembers that an owner does not answer, or is no owner any more. What
// is known of later owners stays.
func (n *node) suspected(owner string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.suspect = owner
}

// hear takes what an answer says of the owner. It reports false for an answer of an
// epoch that is over.
func (n *node) hear(owner string, epoch uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if epoch < n.heard.epoch {
		return false
	}
	n.heard = lead{owner, epoch}
	if n.suspect == owner {
		n.suspect = ""
	}
	return true
}

// route sends on what is for an owner elsewhere and returns what is to be done
// here. Requests of other hosts are never sent on: their senders do that, so no
// request travels in a circle.
func (n *node) route(base known, batch []*request) (here []*request) {
	if n.owned.Load() {
		return batch
	}
	owner := n.elsewhere(base.record)
	batch = append(batch, n.waiting...)
	n.waiting = nil
	for _, r := range batch {
		switch {
		case r.remote && base.record.Head().Owner != n.host.owner:
			r.deliver(reply{moved: true, known: base})
		case owner == "" || local(r.cmd):
			here = append(here, r)
		default:
			n.forward(r, owner)
		}
	}
	return here
}

// local reports whether a command concerns this host's knowledge only.
func local(cmd record.Command) bool {
	switch cmd.(type) {
	case record.Look, record.Resign:
		return true
	}
	return false
}

// looks reports whether somebody wants the record itself.
func looks(batch []*request) bool {
	for _, r := range batch {
		if _, ok := r.cmd.(record.Look); ok {
			return true
		}
	}
	return false
}

func (n *node) forward(r *request, owner string) {
	r.park()
	if !n.host.start(func() { n.carry(r, owner) }) {
		r.deliver(refused(abi.Unavailable))
	}
}

// carry brings a request to its owner and the answer back. An owner that has
// acknowledged the receipt and does not answer is asked again: it may have died
// since.
func (n *node) carry(r *request, owner string) {
	for !r.gone() {
		res, err := n.host.call(n.key, r, owner)
		switch {
		case errors.Is(err, kvbucket.ErrNoListener), errors.Is(err, kvbucket.ErrNoReceipt):
			n.suspected(owner)
			n.reroute(r)
			return
		case errors.Is(err, context.DeadlineExceeded):
			if r.waits { // its sender asks again by itself
				return
			}
			continue
		case errors.Is(err, kvbucket.ErrOverloaded):
			r.deliver(refused(abi.Overloaded))
			return
		case err != nil:
			n.undone(r, reply{Answer: record.Answer{Code: abi.Unavailable}, err: err})
			return
		}
		if next := n.answered(r, owner, res); next == "" {
			return
		} else if owner = next; !r.hop() {
			n.undone(r, refused(abi.Unavailable))
			return
		}
	}
}

// answered takes a response. It returns where to send the request next, empty if
// that is nowhere.
func (n *node) answered(r *request, owner string, res response) (next string) {
	switch {
	case res.Superseded:
		return ""
	case res.Moved && res.Owner != "" && res.Owner != owner && res.Owner != n.host.owner && n.hear(res.Owner, res.Epoch):
		return res.Owner
	case res.Moved:
		n.suspected(owner)
		n.reroute(r)
		return ""
	case !n.hear(owner, res.Epoch):
		return owner
	}
	n.show(res)
	if r.gone() {
		n.takeBack(r, res.Answer)
		return ""
	}
	r.deliver(reply{Answer: res.Answer})
	return ""
}

// show publishes the record that came with a response.
func (n *node) show(res response) {
	if len(res.Record) == 0 {
		return
	}
	n.observe(kvbucket.Entry{Key: n.key, Value: res.Record, Revision: res.Revision})
}

// reroute lets the loop decide anew where a request belongs.
func (n *node) reroute(r *request) {
	if !r.hop() {
		n.undone(r, refused(abi.Unavailable))
		return
	}
	n.send(r)
}

// hop counts one more way of a request, and reports whether it may be taken.
func (r *request) hop() bool {
	r.hops++
	return r.hops <= maxHops
}

// errTaken ends the attempts of a bid that was successful.
var errTaken = errors.New("the lease was granted")

// takeBack gives back a grant that nobody awaits any more.
func (n *node) takeBack(r *request, a record.Answer) {
	if a.Code != 0 || errors.Is(context.Cause(r.ctx), errTaken) {
		return
	}
	switch c := r.cmd.(type) {
	case record.Acquire:
		n.post(record.Abandon{Lease: c.Lease, Op: c.Op})
	case record.ClaimProbe:
		n.post(record.Withdraw{Op: c.Op})
	}
}

// call sends a request once.
func (h *Host) call(key string, r *request, owner string) (response, error) {
	cmd, err := record.EncodeCommand(r.cmd)
	if err != nil {
		return response{}, err
	}
	data, err := json.Marshal(message{key, r.waits, cmd})
	if err != nil {
		return response{}, err
	}
	patience := receiptTimeout + askAgainEvery
	if r.waits {
		patience = receiptTimeout + silentAfter
	}
	// Not the request's own time: what it was granted must be heard of.
	ctx, cancel := context.WithTimeout(h.ctx, patience)
	defer cancel()
	data, err = h.messenger.Call(ctx, address(owner), data)
	if err != nil {
		return response{}, err
	}
	var res response
	if err := json.Unmarshal(data, &res); err != nil {
		return response{}, err
	}
	return res, nil
}

// receiptTimeout is what a messenger takes at most to find that nobody has received
// a request.
const receiptTimeout = time.Second

// handle answers a request of another host.
func (h *Host) handle(ctx context.Context, data []byte) []byte {
	res := h.answer(ctx, data)
	out, err := json.Marshal(res)
	if err != nil {
		h.log.Error("an answer cannot be sent", "error", err)
	}
	return out
}

func (h *Host) answer(ctx context.Context, data []byte) response {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return response{Answer: record.Answer{Code: abi.Invalid}}
	}
	cmd, err := record.DecodeCommand(m.Command)
	if err != nil {
		return response{Answer: record.Answer{Code: abi.Unsupported}}
	}
	k, err := kindOf(m.Key)
	if err != nil {
		return response{Answer: record.Answer{Code: abi.Invalid}}
	}
	life := ctx
	if m.Waits {
		patient, cancel := context.WithTimeout(ctx, silentAfter)
		defer cancel()
		life = patient
	}
	r := &request{ctx: life, cmd: cmd, waits: m.Waits, remote: true, reply: make(chan reply, 1)}
	a := h.node(m.Key, k).await(life, r)
	if a.superseded || a.err != nil && m.Waits && ctx.Err() == nil && life.Err() != nil {
		return response{Superseded: true}
	}
	return a.response(h.now())
}

// response returns what another host is told.
func (a reply) response(now record.Now) response {
	res := response{Answer: a.Answer, Moved: a.moved, Revision: a.known.revision}
	if a.known.record == nil {
		return res
	}
	head := a.known.record.Head()
	res.Owner, res.Epoch = head.Owner, head.Epoch
	if o, ok := a.known.record.(*record.Object); ok && !a.moved && a.known.revision != 0 {
		res.Record, _ = o.Clone().Encode(now) // without it, the watch tells
	}
	return res
}

// kindOf returns what nodes of a key have in common.
func kindOf(key string) (kind, error) {
	parts, err := record.ParseKey(key)
	switch {
	case err != nil:
		return kind{}, err
	case len(parts) == 3 && parts[0] == record.KindObject:
		return objectKind(), nil
	case len(parts) > 3 && parts[0] == record.KindPage:
		return pageKind(), nil
	}
	return kind{}, invalid("key %q", key)
}
