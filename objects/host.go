package objects

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// A Config says what a host of objects stands on.
type Config struct {
	// Bucket holds the records. All hosts of a fleet share one.
	Bucket kvbucket.Bucket
	// Messenger reaches the other hosts, so that one host at a time decides about
	// an object and the others ask it. Hosts that use one must not share a bucket
	// with hosts that do not. Nil means that hosts only meet in the bucket: each
	// claims an object that it is asked about.
	Messenger kvbucket.Messenger
	// Answers holds what executions have answered, if it is larger than
	// MaxInlineAnswer. All hosts of a fleet share one. Nil means that such answers
	// are kept for nobody.
	Answers kvbucket.Blobs
	// Host names this host to operators, in records and in logs. Hosts may share
	// a name: what tells them apart is a random incarnation that Open adds. Empty
	// means "host".
	Host string
	// Logger receives what no caller is told. Nil means slog.Default.
	Logger *slog.Logger
	// Metrics receives this host's collectors until Close. Nil means none.
	Metrics prometheus.Registerer

	clock func() stamp // nil: this machine's
}

// A Host is this process's part in the objects of the fleet. Its methods may be
// called from any number of goroutines.
type Host struct {
	bucket    kvbucket.Bucket
	messenger kvbucket.Messenger // nil: no host talks to another
	hangUp    func(context.Context) error
	log       *slog.Logger
	metrics   *metrics
	owner     string // the host's name and its incarnation
	clock     func() stamp
	floor     floor
	ids       atomic.Uint64
	lost      atomic.Int64 // the host's clock, plus one, when the store first did not answer; zero: it does

	ctx    context.Context // ends when the host must do no more I/O
	cancel context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of the host
	closed chan struct{}  // closed when Close has ended

	mu           sync.Mutex // guards the fields below
	closing      bool       // callers are refused
	stopped      bool       // no goroutine starts
	dependencies map[ID]*Dependency
	nodes        map[string]*node
	sweepAt      int // the number of nodes at which idle ones are dropped
	leases       map[*Lease]struct{}
}

// Open starts a host. It waits for nothing: a host opens and admits calls while
// the store is away. The error unwraps to abi.Invalid if cfg cannot be used.
func Open(_ context.Context, cfg Config) (*Host, error) {
	if cfg.Bucket == nil {
		return nil, fmt.Errorf("objects: no bucket: %w", abi.Invalid)
	}
	if cfg.Host == "" {
		cfg.Host = "host"
	}
	if err := checkName("host", cfg.Host); err != nil {
		return nil, err
	}
	if quoted, err := json.Marshal(cfg.Host); err != nil || len(quoted) != len(cfg.Host)+2 {
		return nil, invalid("host %q: characters that JSON escapes", cfg.Host) // the size of a page counts on it
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Host{
		bucket:       cfg.Bucket,
		messenger:    cfg.Messenger,
		hangUp:       func(context.Context) error { return nil },
		log:          cfg.Logger,
		owner:        cfg.Host + "." + incarnation(),
		clock:        clockSince(time.Now()),
		closed:       make(chan struct{}),
		dependencies: map[ID]*Dependency{},
		nodes:        map[string]*node{},
		sweepAt:      minSweep,
		leases:       map[*Lease]struct{}{},
	}
	if cfg.clock != nil {
		h.clock = cfg.clock
	}
	var err error
	if h.metrics, err = newMetrics(cfg.Metrics, h); err != nil {
		return nil, fmt.Errorf("objects: metrics: %w", err)
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if h.messenger != nil {
		if h.hangUp, err = h.messenger.Serve(address(h.owner), h.handle); err != nil {
			h.cancel()
			h.metrics.unregister()
			return nil, fmt.Errorf("objects: %w", err)
		}
	}
	h.start(h.watch)
	h.start(h.poll)
	return h, nil
}

// incarnation returns what tells this start of a host from every other.
func incarnation() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// id returns an identifier that no other host and no other call gets.
func (h *Host) id() string {
	return incarnationOf(h.owner) + "-" + strconv.FormatUint(h.ids.Add(1), 36)
}

// now returns the moment as transitions see it.
func (h *Host) now() record.Now {
	now := h.clock()
	return record.Now{Mono: now.mono, Micros: h.floor.micros(now.wall), Jitter: mathrand.Float64()}
}

// start runs f in a goroutine that Close waits for. It reports false, and runs
// nothing, if the host has stopped.
func (h *Host) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.tasks.Go(f)
	return true
}

// open returns a refusal if Close has been called.
func (h *Host) open() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return closed()
	}
	return nil
}

// Close ends every lease that is still held and releases it, gives up the
// ownership of this host's objects, and returns when all goroutines of the host
// have ended. New calls are refused as unavailable. When ctx ends, what has not
// been given up is left to lapse; the goroutines are joined all the same. Closing
// again waits for the first call and does nothing else.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	first := !h.closing
	h.closing = true
	leases := slices.Collect(maps.Keys(h.leases))
	h.mu.Unlock()
	if !first {
		select {
		case <-h.closed:
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
	defer close(h.closed)

	h.forgetViews()
	err := h.handOver(ctx, leases)
	h.mu.Lock()
	h.stopped = true
	nodes := slices.Collect(maps.Values(h.nodes))
	h.mu.Unlock()
	h.cancel()
	_ = h.hangUp(context.WithoutCancel(ctx)) // its handlers end with the host
	h.tasks.Wait()
	for _, n := range nodes {
		n.stop()
	}
	h.metrics.unregister()
	return err
}

// forgetViews sends the callers that read nothing but memory to where closing is
// noticed.
func (h *Host) forgetViews() {
	h.mu.Lock()
	dependencies := slices.Collect(maps.Values(h.dependencies))
	h.mu.Unlock()
	for _, d := range dependencies {
		d.forget()
	}
}

// maxHandOvers bounds the commands that Close has under way.
const maxHandOvers = 64

// handOver releases leases and gives up records until ctx ends.
func (h *Host) handOver(ctx context.Context, leases []*Lease) error {
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, maxHandOvers)
	)
	do := func(f func()) {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f()
		})
	}
	for _, l := range leases {
		do(func() { _ = l.end(ctx, abi.LeaseLost) }) // what cannot be released lapses
	}
	group.Wait()
	h.mu.Lock()
	nodes := slices.Collect(maps.Values(h.nodes))
	h.mu.Unlock()
	for _, n := range nodes {
		if n.owned.Load() && ctx.Err() == nil {
			do(func() { n.ask(ctx, record.Resign{}) })
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("objects: close: %w", context.Cause(ctx))
	}
	return nil
}

// node returns the loop of a record.
func (h *Host) node(key string, k kind) *node {
	h.mu.Lock()
	n := h.nodeLocked(key, k)
	var all []*node
	if len(h.nodes) > h.sweepAt {
		all = slices.Collect(maps.Values(h.nodes))
		h.sweepAt = len(all) * 2
	}
	h.mu.Unlock()
	if all != nil {
		h.sweep(all, n)
	}
	return n
}

// minSweep is the number of nodes that a host keeps whether or not they are in use.
const minSweep = 4096

// sweep drops the nodes that are idle, since callers name pages without number. One
// that somebody is about to use works on: beside a newer one it is like that of
// another host.
func (h *Host) sweep(all []*node, but *node) {
	idle := slices.DeleteFunc(all, func(n *node) bool { return n == but || !n.leave() })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range idle {
		delete(h.nodes, n.key)
	}
	h.sweepAt = max(minSweep, 2*len(h.nodes))
}

// nodeLocked is node for a caller who holds mu.
func (h *Host) nodeLocked(key string, k kind) *node {
	n, ok := h.nodes[key]
	if !ok {
		n = &node{host: h, key: key, kind: k}
		h.nodes[key] = n
	}
	return n
}

// watch follows what other hosts do to breakers, so that none acts on a state that
// is over.
func (h *Host) watch() {
	for h.ctx.Err() == nil {
		for e := range h.bucket.Watch(h.ctx, record.KindObject+".>") {
			h.mu.Lock()
			n := h.nodes[e.Key]
			h.mu.Unlock()
			if n != nil {
				n.observe(e)
			}
		}
		pause(h.ctx, jittered(time.Second))
	}
}
