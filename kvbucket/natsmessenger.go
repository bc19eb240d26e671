package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// receiptTimeout is how long a caller waits for the receipt of a request: many
	// round trips, and little beside the time in which a dead owner is replaced.
	receiptTimeout = 500 * time.Millisecond
	// maxSends is how often a request is sent before its listener counts as gone.
	maxSends = 2
	// maxReplies is how many replies to one request are kept for its caller: two
	// receipts, two answers, and the server's word that nobody listens.
	maxReplies = 5
	// hostSubject comes before the address in the subject of a listener.
	hostSubject = "edgehost.host."
)

// Headers and their values in replies. An answer that is one has none of them.
const (
	headerReceipt = "Edgehost-Receipt"
	headerStatus  = "Status"
	statusNobody  = "503" // set by the server
)

var (
	// errSilence: no reply came in time.
	errSilence = errors.New("no reply")
	// errInterrupted: the connection was lost, and replies under way with it.
	errInterrupted = errors.New("the connection was lost")
)

// A MessengerConfig says how a host shows itself to the nats tools.
type MessengerConfig struct {
	// Host is the name of the host.
	Host string
	// Version is that of the program; empty for none.
	Version string
}

// NATSMessenger is a Messenger between hosts that are connected to the same NATS.
// What it serves is registered as the NATS service "edgehost" (ADR-32), so that
// `nats micro list edgehost` shows the hosts, and `nats micro stats edgehost` what
// they do. It is as trustworthy as the network of the NATS server: whoever may
// publish there may send requests.
type NATSMessenger struct {
	conn  *Conn
	cfg   MessengerConfig
	inbox string // replies come to inbox.token
	token atomic.Uint64

	mu    sync.Mutex // guards calls
	calls map[string]*call
}

var _ Messenger = (*NATSMessenger)(nil)

// Messenger returns a messenger that lives as long as the connection. All its calls
// share one subscription; make one per connection.
func (c *Conn) Messenger(cfg MessengerConfig) (*NATSMessenger, error) {
	m := &NATSMessenger{conn: c, cfg: cfg, inbox: c.nc.NewInbox(), calls: map[string]*call{}}
	// Its subscription ends with the connection, and is made anew by a reconnect.
	if _, err := c.nc.Subscribe(m.inbox+".*", m.deliver); err != nil {
		return nil, c.messengerError("subscribe", err)
	}
	return m, nil
}

// messengerError translates an error of the library about something that was not
// sent.
func (c *Conn) messengerError(what string, err error) error {
	if c.life.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// deliver hands a reply to the call that waits for it. Replies that nobody waits
// for any more, such as a second answer, are dropped.
func (m *NATSMessenger) deliver(reply *nats.Msg) {
	token := strings.TrimPrefix(reply.Subject, m.inbox+".")
	m.mu.Lock()
	k := m.calls[token]
	m.mu.Unlock()
	if k == nil {
		return
	}
	select {
	case k.replies <- reply:
	default:
	}
}

// Call implements [Messenger]. If the connection is lost before the answer has come,
// the request is sent again when it is back, which Call awaits for 5 s from the loss;
// ErrUnavailable then says that the request may have been handled.
func (m *NATSMessenger) Call(ctx context.Context, address string, request []byte) ([]byte, error) {
	if err := checkRequest(ctx, address, request); err != nil {
		return nil, err
	}
	token := strconv.FormatUint(m.token.Add(1), 36)
	k := &call{conn: m.conn, address: address, replies: make(chan *nats.Msg, maxReplies), request: nats.NewMsg(hostSubject + address)}
	k.request.Reply, k.request.Data = m.inbox+"."+token, request
	m.mu.Lock()
	m.calls[token] = k
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.calls, token)
	}()
	return k.pursue(ctx)
}

// A call is one Call under way.
type call struct {
	conn    *Conn
	address string
	request *nats.Msg
	replies chan *nats.Msg
	sent    int // how often the request has been sent
}

// pursue exchanges the request for an answer over as many connections as it takes.
func (k *call) pursue(ctx context.Context) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		answer, err := k.exchange(ctx, k.conn.currentSession())
		switch {
		case k.conn.life.Err() != nil:
			return nil, ErrClosed
		case !errors.Is(err, errInterrupted):
			return answer, err
		case k.sent == 0, k.conn.outage() > outageGrace:
			return nil, fmt.Errorf("%w: request to %q: %w", ErrUnavailable, k.address, err)
		}
		if waitErr := wait(ctx, backoff(attempt)); waitErr != nil {
			return nil, k.ended(waitErr)
		}
	}
}

// exchange sends the request, once more if its receipt does not come, and awaits the
// answer.
func (k *call) exchange(ctx, session context.Context) ([]byte, error) {
	for range maxSends {
		if !k.conn.nc.IsConnected() {
			return nil, errInterrupted
		}
		if err := k.conn.nc.PublishMsg(k.request); err != nil {
			return nil, fmt.Errorf("%w: %w", errInterrupted, err)
		}
		k.sent++
		reply, err := k.await(ctx, session)
		if errors.Is(err, errSilence) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return k.judge(reply)
	}
	return nil, fmt.Errorf("%w to %q", ErrNoReceipt, k.address)
}

// await returns the reply that is no receipt. It is errSilence if none of either kind
// comes in time.
func (k *call) await(ctx, session context.Context) (*nats.Msg, error) {
	timer := time.NewTimer(receiptTimeout)
	defer timer.Stop()
	silence := timer.C
	for {
		select {
		case reply := <-k.replies:
			if reply.Header.Get(headerReceipt) == "" {
				return reply, nil
			}
			silence = nil
		case <-silence:
			return nil, errSilence
		case <-session.Done():
			return nil, errInterrupted
		case <-ctx.Done():
			return nil, k.ended(context.Cause(ctx))
		}
	}
}

func (k *call) ended(cause error) error {
	return fmt.Errorf("kvbucket: no answer from %q: %w", k.address, cause)
}

// judge returns what a reply says.
func (k *call) judge(reply *nats.Msg) ([]byte, error) {
	switch code := replyCode(reply); {
	case code == "":
		return checkAnswer(k.address, reply.Data)
	case code == codeNobody && k.sent > 1: // an earlier one may have been delivered
		return nil, fmt.Errorf("%w, and now nobody serves %q", ErrNoReceipt, k.address)
	case code == codeNobody:
		return nil, fmt.Errorf("%w: %q", ErrNoListener, k.address)
	case code == codeBusy:
		return nil, fmt.Errorf("%w: %q", ErrOverloaded, k.address)
	case code == codeTooLarge:
		return nil, fmt.Errorf("%w: the answer from %q", ErrTooLarge, k.address)
	default:
		return nil, fmt.Errorf("%w: %q answers %s", ErrUnavailable, k.address, code)
	}
}
