package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// A dead link is noticed after pingInterval × maxPingsOut. The library's
	// default, 2 minutes × 2, outlives every lease.
	pingInterval = 5 * time.Second
	maxPingsOut  = 2
	// connectTimeout bounds one attempt to connect to one server.
	connectTimeout = 2 * time.Second
	// maxReconnectWait bounds the pause between two rounds of reconnecting.
	maxReconnectWait = 2 * time.Second
	// outageGrace is how long an outage of the connection may have lasted before
	// calls that have sent nothing fail at once instead of waiting for its end.
	// A server that restarts is back within it.
	outageGrace = 5 * time.Second
)

// errNotSent: a request was not sent at all.
var errNotSent = errors.New("nothing was sent")

// A ConnConfig says how to reach a NATS server.
type ConnConfig struct {
	// URL is one or more server addresses, separated by commas, such as
	// "nats://127.0.0.1:4222". [Server.Dial] ignores it.
	URL string
	// Creds names a file with NATS user credentials; empty for none.
	Creds string
	Identity
	// Name is what the server's operator sees in the list of connections.
	Name string
	// Logger gets the changes of the connection's state; nil for none.
	Logger *slog.Logger
	// Metrics gets edgehost_kv_conflicts_total and edgehost_kv_ambiguous_total;
	// nil for none. Connections may share one registerer: they count together.
	Metrics prometheus.Registerer
}

// A Conn is a connection to a NATS server or cluster. It reconnects for as long
// as it is open, and sends nothing that was meant for an earlier connection.
type Conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	name    string
	log     *slog.Logger
	metrics *metrics
	life    context.Context // ends, with ErrClosed, when Close is called
	end     context.CancelCauseFunc
	gone    chan struct{} // closed once nc has closed for good

	mu         sync.Mutex // guards the fields below
	downSince  time.Time  // zero while connected
	session    context.Context
	endSession context.CancelFunc
}

// Dial connects to a server and checks that it can hold buckets: NATS 2.11 or
// later with JetStream enabled for the account. A server that is not there is an
// error at once; later outages are ridden out. The caller closes the Conn.
func Dial(ctx context.Context, cfg ConnConfig) (*Conn, error) {
	if err := readable(cfg.Creds); err != nil {
		return nil, err
	}
	identity, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return dial(ctx, cfg, identity...)
}

func dial(ctx context.Context, cfg ConnConfig, more ...nats.Option) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kvbucket: connect: %w", context.Cause(ctx))
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Conn{name: cfg.Name, log: orDiscard(cfg.Logger), metrics: m, gone: make(chan struct{})}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.session, c.endSession = context.WithCancel(c.life)
	if c.nc, err = nats.Connect(cfg.URL, append(c.options(ctx, cfg), more...)...); err != nil {
		c.end(ErrClosed)
		return nil, fmt.Errorf("kvbucket: no connection to NATS at %s: %w (is the server running, and is the address right?)",
			redacted(cfg.URL), err)
	}
	if c.js, err = jetstream.New(c.nc); err == nil {
		err = c.checkServer(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

func (c *Conn) options(ctx context.Context, cfg ConnConfig) []nats.Option {
	timeout := connectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(timeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.MaxReconnects(-1),
		// What was written for a lost connection must not be sent by a later one:
		// by then its sender may have given up.
		nats.ReconnectBufSize(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		// Without this, two refusals of the credentials, as during a rollout of
		// new ones, end the connection for good.
		nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(c.disconnected),
		nats.ReconnectHandler(c.reconnected),
		nats.ClosedHandler(func(*nats.Conn) { close(c.gone) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("the store reports an error", "err", err)
		}),
	}
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	return opts
}

// reconnectDelay spreads the hosts that lost the same server.
func reconnectDelay(rounds int) time.Duration {
	bound := maxReconnectWait
	if doubled := 50 * time.Millisecond << min(rounds, 16); doubled < bound {
		bound = doubled
	}
	return bound/2 + rand.N(bound/2)
}

// Close closes the connection. Calls under way end with ErrClosed, writes with
// ErrUnknown too if they had been sent, and every Watch ends. Closing again does
// nothing; the error is ctx's, if that ends first.
func (c *Conn) Close(ctx context.Context) error {
	c.end(ErrClosed)
	c.nc.Close()
	select {
	case <-c.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kvbucket: close: %w", context.Cause(ctx))
	}
}

func (c *Conn) disconnected(_ *nats.Conn, err error) {
	if c.life.Err() != nil {
		return
	}
	c.mu.Lock()
	c.downSince = time.Now()
	c.endSession()
	c.session, c.endSession = context.WithCancel(c.life)
	c.mu.Unlock()
	c.log.Warn("connection to the store lost", "err", err)
}

func (c *Conn) reconnected(nc *nats.Conn) {
	c.mu.Lock()
	down := time.Since(c.downSince)
	c.downSince = time.Time{}
	c.mu.Unlock()
	c.log.Info("connected to the store again", "url", nc.ConnectedUrlRedacted(), "down", down)
}

// currentSession returns a context that ends when the connection is lost or closed.
func (c *Conn) currentSession() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// until returns a context that ends with either of two.
func until(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(end, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// outage returns for how long there has been no connection.
func (c *Conn) outage() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.downSince.IsZero() {
		return 0
	}
	return time.Since(c.downSince)
}

// exchange sends msg as a request and returns the reply. If nothing was sent the
// error is ErrClosed or errNotSent; after any other the request may have arrived.
func (c *Conn) exchange(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	if c.life.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
	}
	// The library refuses the publish too, but leaks the entry for its reply.
	if !c.nc.IsConnected() {
		return nil, fmt.Errorf("%w: not connected", errNotSent)
	}
	// A reply that has not come before the connection is lost will not come.
	ctx, cancel := until(ctx, c.currentSession())
	defer cancel()
	return c.nc.RequestMsgWithContext(ctx, msg)
}

// checkServer returns an error that says what to change if the server is too old
// or has no JetStream.
func (c *Conn) checkServer(ctx context.Context) error {
	if v := c.nc.ConnectedServerVersion(); !atLeast(v, minMajor, minMinor) {
		return fmt.Errorf("kvbucket: the NATS server at %s has version %s: install %d.%d or later, older ones may let two writers win",
			c.nc.ConnectedUrlRedacted(), v, minMajor, minMinor)
	}
	if limit := c.nc.MaxPayload(); limit < MaxValue+maxEnvelope {
		return fmt.Errorf("kvbucket: the NATS server at %s takes messages of %d bytes: set max_payload to at least %d",
			c.nc.ConnectedUrlRedacted(), limit, MaxValue+maxEnvelope)
	}
	_, err := c.js.AccountInfo(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("kvbucket: the NATS server at %s runs without JetStream: start it with -js, or with a jetstream block in its configuration (%w)",
			c.nc.ConnectedUrlRedacted(), err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("kvbucket: JetStream is not enabled for this account at %s: enable it in the account's limits (%w)",
			c.nc.ConnectedUrlRedacted(), err)
	default:
		return fmt.Errorf("kvbucket: asking the NATS server at %s for JetStream: %w", c.nc.ConnectedUrlRedacted(), err)
	}
}

// The oldest server that is safe: 2.11 is the first whose new leader answers only
// after it has applied its log, so that a compare-and-swap cannot be judged by an
// older state. maxEnvelope is room for the subject and headers of a publish.
const (
	minMajor, minMinor = 2, 11
	maxEnvelope        = 4 << 10
)

// atLeast reports whether a server's version is major.minor or later.
func atLeast(version string, major, minor int) bool {
	var gotMajor, gotMinor int
	if _, err := fmt.Sscanf(version, "%d.%d", &gotMajor, &gotMinor); err != nil {
		return false
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

// redacted returns a list of URLs without the passwords in it.
func redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, s := range list {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
