package objects

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// maxMailbox bounds the commands that wait at one record, those queued for a lease
// included. A commit takes all of them at once, so a mailbox that is full holds
// seconds of work for the store.
const maxMailbox = 4096

// confirmEvery is how old the owner's knowledge may be when it refuses somebody
// because of it: another host may have claimed the record and changed it.
const confirmEvery = 250 * time.Millisecond

// retryTick is the pause after which something due is tried again, when the store
// did not answer.
const retryTick = time.Second

// A kind is what nodes of one kind of record have in common.
type kind struct {
	fresh  func() record.Record
	decode func([]byte, record.Now) (record.Record, error)
}

func objectKind() kind { return kind{record.NewObject, record.DecodeObject} }

func pageKind() kind { return kind{record.NewPage, record.DecodePage} }

// A node is the owner's loop of one record. It has a goroutine only while there is
// something to do. The loop takes every queued command, applies them in order to a
// copy, writes the copy once, and releases the answers when the write is known to
// be durable: no answer shows a state that could still be lost.
type node struct {
	host *Host
	key  string
	kind kind
	// viewer is told of every newer record. Nil if nobody looks.
	viewer atomic.Pointer[Dependency]

	mu       sync.Mutex // guards the fields up to the empty line
	queue    []*request
	waiters  int // the length of waiting
	running  bool
	due      bool                        // the timer went off
	owed     map[record.Command]struct{} // what is to be given back once the store answers
	troubled bool                        // the store keeps the batch waiting, or the outcome of a write is not known yet
	batch    []*request
	sight    known
	heard    lead   // of the newest owner elsewhere
	suspect  string // an owner that does not answer
	timer    *time.Timer

	// The loop's own; at most one runs at a time. Others may read owned.
	known       known
	owned       atomic.Bool
	waiting     []*request    // for a lease that is held, in the order of arrival
	confirmed   time.Duration // when the store last showed or took the known record
	notBefore   time.Duration // no tick before, after the store failed
	sent, acked time.Time     // of the newest write
}

// known is a record with its revision: zero if there is none.
type known struct {
	record   record.Record
	revision kvbucket.Revision
}

// A request is a command on its way to an answer.
type request struct {
	ctx    context.Context // once ended, the command is dropped unless applied already
	cmd    record.Command  // the node's mu guards it while the request is in the mailbox
	waits  bool            // wait in place of a busy answer
	parked *atomic.Bool    // set once the request waits for a lease that is held; nil if it never waits
	reply  chan reply
	remote bool // of another host, which asks whoever else is the owner
	queued bool // in the mailbox; the node's mu guards it
	hops   int  // how often it was sent on
}

type reply struct {
	record.Answer
	err        error // the record cannot be used; Code says what it means
	moved      bool  // another host is to be asked
	superseded bool  // the same was asked again, and that will be answered
	known      known // what the answer rests on
}

// deliver answers a request unless it has been answered.
func (r *request) deliver(a reply) {
	select {
	case r.reply <- a:
	default:
	}
}

// park notes that the request has come to an owner, who lets it wait.
func (r *request) park() {
	if r.parked != nil {
		r.parked.Store(true)
	}
}

func newRequest(ctx context.Context, cmd record.Command) *request {
	return &request{ctx: ctx, cmd: cmd, reply: make(chan reply, 1)}
}

// ask sends a command and waits for its answer until ctx ends. A command that is
// urgent for the fleet, and not for its caller alone, outlives ctx: see post.
func (n *node) ask(ctx context.Context, cmd record.Command) reply {
	return n.await(ctx, newRequest(ctx, cmd))
}

// post sends a command that is to be applied whether or not somebody waits.
func (n *node) post(cmd record.Command) *request {
	r := newRequest(n.host.ctx, cmd)
	n.send(r)
	return r
}

func (n *node) await(ctx context.Context, r *request) reply {
	n.send(r)
	return r.await(ctx)
}

func (r *request) await(ctx context.Context) reply {
	select {
	case a := <-r.reply:
		return a
	case <-ctx.Done():
		return reply{Answer: record.Answer{Code: abi.Unavailable}, err: context.Cause(ctx)}
	}
}

// send puts a request into the mailbox, or answers it if it does not fit. It
// reports whether the request has got in, so that something may come of it.
func (n *node) send(r *request) (entered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !r.cmd.Urgent() {
		if n.troubled {
			r.deliver(refused(abi.Unavailable))
			return false
		}
		if len(n.queue)+n.waiters >= maxMailbox {
			r.deliver(refused(abi.Overloaded))
			return false
		}
	}
	r.queued = true
	n.queue = append(n.queue, r)
	n.start()
	return true
}

// update replaces the command of a request that is still in the mailbox, and
// reports whether it is. Repeats must not fill the mailbox of a loop that waits
// for the store.
func (n *node) update(r *request, cmd record.Command) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.queued {
		r.cmd = cmd
	}
	return r.queued
}

func refused(code abi.Code) reply { return reply{Answer: record.Answer{Code: code}} }

// start makes the loop run. The caller holds mu.
func (n *node) start() {
	if n.running {
		return
	}
	n.running = n.host.start(n.run)
	if !n.running {
		for _, r := range n.queue {
			r.deliver(refused(abi.Unavailable))
		}
		n.queue = nil
	}
}

// observe takes an entry from the watch. Whether it means that another host owns
// the record now is for the loop to find out, which knows what it has written.
func (n *node) observe(e kvbucket.Entry) {
	n.mu.Lock()
	newer := e.Revision > n.sight.revision
	n.mu.Unlock()
	if !newer {
		return
	}
	r, err := n.kind.decode(e.Value, n.host.now())
	if err != nil {
		n.host.log.Error("a watched record cannot be read", "key", n.key, "error", err)
		return
	}
	sight := known{r, e.Revision}
	n.mu.Lock()
	n.sight = sight
	n.mu.Unlock()
	n.tell(sight)
}

func (n *node) tell(k known) {
	if d := n.viewer.Load(); d != nil && k.record != nil {
		d.learn(k.record, k.revision)
	}
}

func (n *node) run() {
	for {
		batch, ok := n.take()
		if !ok {
			return
		}
		impatience := time.AfterFunc(storePatience, n.giveUpGrants)
		n.serve(batch)
		impatience.Stop()
		n.trust()
	}
}

// take returns what is queued. It ends the loop if there is nothing to do, and
// then sets the timer for what will be.
func (n *node) take() (batch []*request, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiters = len(n.waiting)
	if len(n.queue) == 0 && !n.due {
		n.running = false
		n.arm()
		return nil, false
	}
	if n.due {
		for cmd := range n.owed {
			n.queue = append(n.queue, newRequest(n.host.ctx, cmd))
		}
		n.owed = nil
	}
	n.batch, n.queue, n.due = n.queue, nil, false
	for _, r := range n.batch {
		r.queued = false
	}
	return n.batch, true
}

// arm sets the timer. The caller holds mu and runs the loop.
func (n *node) arm() {
	if n.timer != nil {
		n.timer.Stop()
	}
	at, ok := time.Duration(0), len(n.owed) > 0
	if n.owned.Load() && !ok {
		at, ok = n.known.record.Next()
	}
	if !ok {
		return
	}
	d := max(at, n.notBefore) - n.host.now().Mono
	n.timer = time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.due = true
		n.start()
	})
}

// leave gives up what an idle node knows, and reports whether it is idle.
func (n *node) leave() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running || n.viewer.Load() != nil || len(n.owed)+len(n.waiting) > 0 {
		return false
	}
	if !n.owned.Load() {
		return true
	}
	if _, due := n.known.record.Next(); due {
		return false
	}
	n.owned.Store(false)
	n.host.metrics.own(false)
	return true
}

// stop ends the timer of a node whose host is closed.
func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
	}
}

// serve brings a batch to its answers. A write that is refused because another
// host has changed the record is planned again on what that host has written,
// after a claim: commands say what they are about, so a second application finds
// what the first one did.
func (n *node) serve(batch []*request) {
	for attempt := 0; ; attempt++ {
		base, err := n.base(batch)
		if err != nil {
			n.fail(batch, err)
			return
		}
		batch = n.route(base, batch)
		n.hold(batch)
		p := n.plan(base, batch)
		if p.idle() && !n.owned.Load() {
			return
		}
		switch err := n.carryOut(p); {
		case err == nil:
			n.release(p)
			return
		case !errors.Is(err, errRetry):
			n.fail(batch, err)
			return
		}
		backoff := jittered(min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond))
		if attempt > 0 && !pause(n.host.ctx, backoff) {
			n.fail(batch, n.host.ctx.Err())
			return
		}
	}
}

// errRetry asks serve to plan again on a newer record.
var errRetry = errors.New("the record has changed")

// carryOut makes what is planned durable. An answer that rests on no write rests
// on what this host knows as the owner, confirmed lately if it refuses somebody.
func (n *node) carryOut(p *plan) error {
	owned := n.owned.Load()
	switch {
	case !owned && p.passive && p.base.revision != 0:
		n.adopt(p.base, false)
		return nil
	case !owned && n.host.floor.due(n.host.now().Mono):
		return n.claimAlone(p.base)
	case !owned || p.changed:
		return n.commit(p.next, p.base)
	case p.refuses && n.host.now().Mono-n.confirmed > confirmEvery:
		return n.confirm()
	}
	return nil
}

// A plan is what a batch makes of a record, as long as nothing is written.
type plan struct {
	base     known
	next     record.Record
	changed  bool
	refuses  bool // some answer says that somebody else is in the way
	passive  bool // nothing is asked that only an owner may do
	answers  []answer
	waiting  []*request
	repeated []*request // their senders have asked again
	now      record.Now
}

type answer struct {
	to *request
	record.Answer
}

func (p *plan) idle() bool { return len(p.answers)+len(p.waiting) == 0 }

// plan applies a batch to a copy of base. It has no effect on the node, so it can
// be done over.
func (n *node) plan(base known, batch []*request) *plan {
	p := &plan{base: base, next: base.record.Clone(), passive: true, now: n.host.now()}
	p.waiting = slices.DeleteFunc(slices.Clone(n.waiting), (*request).gone)
	if p.next.Tick(p.now) {
		p.changed = true
		p.wake()
	}
	for _, r := range batch {
		if !r.gone() {
			p.apply(r)
		}
	}
	return p
}

func (r *request) gone() bool { return r.ctx.Err() != nil }

func (p *plan) apply(r *request) {
	a, changed := p.next.Apply(r.cmd, p.now)
	p.changed = p.changed || changed
	switch r.cmd.(type) {
	case record.Look, record.Resign:
	default:
		p.passive = false
	}
	if a.Code == abi.LeaseBusy || a.Code == abi.Deferred || a.Code == abi.BreakerOpen {
		p.refuses = true
	}
	if a.Code == abi.LeaseBusy && r.waits {
		p.wait(r)
		return
	}
	p.answers = append(p.answers, answer{r, a})
	switch r.cmd.(type) {
	case record.Release, record.Abandon:
		p.wake()
	}
}

// wait queues a request. A repeat takes the place of the earlier attempt, so that
// asking again costs nobody his turn.
func (p *plan) wait(r *request) {
	op := r.cmd.(record.Acquire).Op
	same := func(w *request) bool { return w.cmd.(record.Acquire).Op == op }
	if i := slices.IndexFunc(p.waiting, same); i >= 0 {
		p.repeated = append(p.repeated, p.waiting[i])
		p.waiting[i] = r
		return
	}
	p.waiting = append(p.waiting, r)
}

// wake gives what has become free to those who have waited longest.
func (p *plan) wake() {
	waiting := p.waiting
	p.waiting = nil
	for _, r := range waiting {
		p.apply(r)
	}
}

// release answers a batch whose plan is durable.
func (n *node) release(p *plan) {
	n.waiting = p.waiting
	for _, r := range p.waiting {
		r.park()
	}
	n.notBefore = 0
	for _, a := range p.answers {
		a.to.deliver(reply{Answer: a.Answer, known: n.known})
	}
	for _, r := range p.repeated {
		if r.remote {
			r.deliver(reply{superseded: true})
		}
	}
	if !n.owned.Load() {
		n.route(n.known, nil) // who waits is to wait elsewhere
	}
	n.compareClocks()
}

// fail answers a batch that changed nothing.
func (n *node) fail(batch []*request, err error) {
	n.notBefore = n.host.now().Mono + jittered(retryTick)
	code := codeOf(err)
	if code != abi.Unavailable {
		n.host.log.Error("a record cannot be used", "key", n.key, "error", err)
	}
	for _, r := range batch {
		n.undone(r, reply{Answer: record.Answer{Code: code}, err: err})
	}
}

// undone answers a request that the store, or its owner, did not take. What gives
// something back has no other sender who would try again: the node does, up to a
// bound; what is beyond it lapses.
func (n *node) undone(r *request, a reply) {
	r.deliver(a)
	switch r.cmd.(type) {
	case record.Abandon, record.Withdraw:
	default:
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Code != abi.Unavailable || len(n.owed) >= maxMailbox {
		return
	}
	if n.owed == nil {
		n.owed = map[record.Command]struct{}{}
	}
	n.owed[r.cmd] = struct{}{}
	if !n.running {
		n.notBefore = n.host.now().Mono + jittered(retryTick)
		n.arm()
	}
}

// doubt tells everybody who waits that the store does not answer, while the
// outcome of a write is unknown. What was asked may still come true: the loop goes
// on until it knows, and whoever no longer wants what he asked for says so by a
// command of his own, which the mailbox keeps.
func (n *node) doubt() {
	n.warn(func(r *request) bool {
		// Counting failures twice would open a breaker early: a report waits.
		_, counts := r.cmd.(record.Report)
		return !counts
	})
}

// giveUpGrants is doubt about a store that takes too long, for those who ask for
// something new. Holders know themselves how long they can wait.
func (n *node) giveUpGrants() {
	n.warn(func(r *request) bool { return !r.cmd.Urgent() })
}

func (n *node) warn(concerns func(*request) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.batch == nil {
		return // it has just been answered
	}
	n.troubled = true
	for _, r := range slices.Concat(n.batch, n.queue) {
		if concerns(r) {
			r.deliver(refused(abi.Unavailable))
		}
	}
	n.queue = slices.DeleteFunc(n.queue, func(r *request) bool {
		return r.gone() || concerns(r) && repeats(r.cmd)
	})
}

// repeats reports whether whoever is told that a command was not carried out sends
// it again, or does without.
func repeats(cmd record.Command) bool {
	switch cmd.(type) {
	case record.Renew, record.Settle:
		return true
	}
	return !cmd.Urgent()
}

// hold notes whom doubt concerns.
func (n *node) hold(batch []*request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batch = batch
}

// trust ends doubt: the batch has been answered.
func (n *node) trust() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batch, n.troubled = nil, false
}
