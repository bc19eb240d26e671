package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// serviceName is the name under which the nats tools list hosts.
const serviceName = "edgehost"

const (
	// subscribeTimeout bounds how long Serve waits for the server.
	subscribeTimeout = 2 * time.Second
	// unsubscribeTimeout bounds how long a stop waits for the server, which matters
	// only to those who would call a moment later.
	unsubscribeTimeout = 200 * time.Millisecond
)

// Keys of a service's metadata.
const (
	metadataHost    = "host"
	metadataVersion = "version" // as the program says it; a service's own is a SemVer
)

// Codes of replies that stand for no answer (ADR-32).
const (
	codeNobody   = "503"
	codeBusy     = "429"
	codeTooLarge = "413"
)

// replyCode returns the code of a reply, or "" if it is an answer.
func replyCode(reply *nats.Msg) string {
	if reply.Header == nil {
		return ""
	}
	if len(reply.Data) == 0 && reply.Header.Get(headerStatus) == statusNobody {
		return codeNobody
	}
	return reply.Header.Get(micro.ErrorCodeHeader)
}

// A listener serves one address.
type listener struct {
	*handlers
	conn   *Conn
	handle func(context.Context, []byte) []byte

	handled, refused, repeated atomic.Uint64

	mu      sync.Mutex // guards pending
	pending map[string]struct{}
}

// Serve implements [Messenger]. The address is served for as long as the connection
// is open, however often it is lost.
func (m *NATSMessenger) Serve(address string, handle func(ctx context.Context, request []byte) []byte) (stop func(context.Context) error, err error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	if m.conn.life.Err() != nil {
		return nil, ErrClosed
	}
	l := &listener{handlers: newHandlers(), conn: m.conn, handle: handle, pending: map[string]struct{}{}}
	service, err := micro.AddService(m.conn.nc, micro.Config{
		Name:         serviceName,
		Version:      semanticVersion(m.cfg.Version),
		Description:  "edgehost hosts; requests are between them only",
		Metadata:     map[string]string{metadataHost: m.cfg.Host, metadataVersion: m.cfg.Version},
		StatsHandler: func(*micro.Endpoint) any { return l.statistics() },
		// An address has one listener: sharing its requests would hide a second one.
		QueueGroupDisabled: true,
		Endpoint:           &micro.EndpointConfig{Subject: hostSubject + address, Handler: micro.HandlerFunc(l.receive)},
	})
	if err != nil {
		return nil, m.conn.messengerError(fmt.Sprintf("serve %q", address), err)
	}
	stop = func(ctx context.Context) error {
		l.report(errors.Join(service.Stop(), m.conn.settle(ctx, unsubscribeTimeout)))
		return l.stop(ctx)
	}
	// An address may be told to others as soon as Serve returns: by then the server
	// must know its listener.
	if err := m.conn.settle(context.Background(), subscribeTimeout); err != nil {
		return nil, errors.Join(m.conn.messengerError(fmt.Sprintf("serve %q", address), err), stop(context.Background()))
	}
	return stop, nil
}

// settle returns once the server has taken what was sent to it.
func (c *Conn) settle(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !c.nc.IsConnected() {
		return errNotSent
	}
	return c.nc.FlushWithContext(ctx)
}

// semanticVersion returns version in the form that a NATS service must have, or
// 0.0.0 if it has another one.
func semanticVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`).MatchString(version) {
		return version
	}
	return "0.0.0"
}

// listenerStatistics is what a listener adds to the statistics of its service, whose
// own times end with the receipt.
type listenerStatistics struct {
	Running  int    `json:"running"`  // requests that are being handled
	Handled  uint64 `json:"handled"`  // requests that were answered
	Refused  uint64 `json:"refused"`  // requests that were too many
	Repeated uint64 `json:"repeated"` // requests that came again while they ran
}

func (l *listener) statistics() listenerStatistics {
	return listenerStatistics{
		Running: l.count(), Handled: l.handled.Load(), Refused: l.refused.Load(), Repeated: l.repeated.Load(),
	}
}

// receive acknowledges a request and starts its handler. It runs for one request at
// a time.
func (l *listener) receive(r micro.Request) {
	switch {
	case r.Reply() == "": // nobody would learn what came of it
		return
	case len(r.Data()) > MaxMessage:
		l.report(r.Error(codeTooLarge, ErrTooLarge.Error(), nil))
		return
	}
	if !l.enter(r.Reply()) {
		l.repeated.Add(1)
		l.report(l.acknowledge(r))
		return
	}
	if err := l.begin(); err != nil {
		l.leave(r.Reply())
		l.refused.Add(1)
		code := codeNobody
		if errors.Is(err, ErrOverloaded) {
			code = codeBusy
		}
		l.report(r.Error(code, err.Error(), nil))
		return
	}
	l.report(l.acknowledge(r))
	go func() {
		defer l.done()
		defer l.leave(r.Reply())
		answer := l.handle(l.life, r.Data())
		l.handled.Add(1)
		l.report(l.answer(r, answer))
	}()
}

// enter reports whether a request, known by its reply subject, does not run yet.
func (l *listener) enter(reply string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, running := l.pending[reply]; running {
		return false
	}
	l.pending[reply] = struct{}{}
	return true
}

func (l *listener) leave(reply string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, reply)
}

func (l *listener) acknowledge(r micro.Request) error {
	return r.Respond(nil, micro.WithHeaders(micro.Headers{headerReceipt: []string{"1"}}))
}

// answer publishes the answer by itself: the service reads what a Request notes about
// its replies without waiting for the handler.
func (l *listener) answer(r micro.Request, answer []byte) error {
	reply := nats.NewMsg(r.Reply())
	reply.Data = answer
	if len(answer) > MaxMessage {
		reply.Data = nil
		reply.Header.Set(micro.ErrorCodeHeader, codeTooLarge)
		reply.Header.Set(micro.ErrorHeader, ErrTooLarge.Error())
	}
	return l.conn.nc.PublishMsg(reply)
}

// report notes what was not sent: a reply, whose caller sends the request again, or
// the end of a subscription.
func (l *listener) report(err error) {
	if err != nil {
		l.conn.log.Debug("a message between hosts was not sent", "err", err)
	}
}
