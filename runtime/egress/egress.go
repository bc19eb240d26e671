// Package egress makes the HTTP requests that guests ask for, and no others.
//
// A Client reaches one dependency, or the hosts of an allow list, and everything
// else is Denied. The name in a URL is not trusted: every dial checks the
// address that the name resolved to, so that a public name cannot lead to the
// host's own network (DNS rebinding, a redirect to the metadata service of a
// cloud). Loopback, private, link-local, shared, documentation, multicast and
// reserved ranges are refused, after the IANA special-purpose address registries
// (RFC 6890). Only a dependency can lift this, by naming the address itself:
// http://10.0.0.7:8080 reaches that address and port, and http://localhost:9090
// that port of the loopback addresses. A host name that merely resolves to such an
// address is refused even then, unless it is in Config.Addresses.
//
// Proxies of the environment are ignored, cookies are not kept, and bodies
// arrive as the server sent them, compressed or not.
//
// # Redirects
//
// A client of an allow list follows at most 10 redirects, each only to an
// allowed host. A client of a dependency follows those of GET and HEAD that stay
// on the dependency's origin (scheme, host and port), and hands those of other
// methods to the caller, who knows whether the request may be repeated. A
// redirect to anywhere else is Denied, and its target is not touched. A redirect
// whose body would have to be sent again and cannot be is handed to the caller.
// Once a redirect has left an origin, only the fields that describe the content
// and its negotiation are sent on (RFC 9110, section 15.4): credentials have no
// common name by which to leave out only them.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"
)

// Config says what a Client stands on. The zero value is usable.
type Config struct {
	Resolver *net.Resolver  // nil: the system's
	RootCAs  *x509.CertPool // of servers; nil: the system's
	MaxConns int            // connections to one host at a time, more wait; 256
	Logger   *slog.Logger   // one line per denial; nil discards

	// Addresses are those that the name of a dependency may lead to besides
	// public ones: addresses, and ranges of private, shared, loopback,
	// documentation or benchmarking ones, such as "10.0.0.0/8" for the services
	// of a cluster. Link-local, metadata and reserved addresses are reached only if
	// they are named one by one, even if a range contains them. NewPlain takes
	// none.
	Addresses []string
}

const (
	dialTimeout     = 5 * time.Second // also bounds a dial whose request has been given up
	idleTimeout     = 30 * time.Second
	maxHeaderBytes  = 256 << 10 // of an answer
	maxIdleConns    = 64
	defaultMaxConns = 256
	maxRedirects    = 10
)

// A Client makes requests. Its methods may be called by several goroutines. It
// has a connection pool of its own.
type Client struct {
	base    *url.URL // nil without a dependency
	allowed allowList
	named   named
	log     *slog.Logger
	pooled  http.Client
	single  http.Client // a connection for every request
	closed  atomic.Bool
}

// NewDependency returns a client that reaches one dependency: an absolute http
// or https URL, whose path the targets of requests are joined to. The URL has no
// credentials, query or fragment. The error says what is wrong with it, and with
// cfg.Addresses.
func NewDependency(rawURL string, cfg Config) (*Client, error) {
	base, o, err := parseBase(rawURL)
	if err != nil {
		return nil, fmt.Errorf("egress: dependency: %w", err)
	}
	c := &Client{base: base, allowed: allowList{{origin: o}}, named: namedBy(o)}
	for _, entry := range cfg.Addresses {
		prefix, err := parseAddresses(entry)
		if err != nil {
			return nil, fmt.Errorf("egress: dependency: addresses %q: %w", entry, err)
		}
		c.named.prefixes = append(c.named.prefixes, prefix)
	}
	c.open(cfg)
	return c, nil
}

// NewPlain returns a client that reaches the allowed hosts: "example.com" means
// https at its default port, "example.com:8443" another port, "*.example.com"
// every name below it but not itself, and "http://example.com" http in place of
// https. No hosts allow nothing. A host that is an address of the host's own
// network is refused here, since only a dependency may name one. The error joins
// one for each wrong entry.
func NewPlain(allowHosts []string, cfg Config) (*Client, error) {
	if len(cfg.Addresses) > 0 {
		return nil, errors.New("egress: only a dependency has addresses")
	}
	c := new(Client)
	var errs []error
	for _, entry := range allowHosts {
		r, err := parseRule(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("egress: allowed host %q: %w", entry, err))
		}
		c.allowed = append(c.allowed, r)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c.open(cfg)
	return c, nil
}

func (c *Client) open(cfg Config) {
	c.log = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	single := c.transport(cfg)
	single.DisableKeepAlives = true
	c.single = http.Client{Transport: single, CheckRedirect: c.checkRedirect}
	c.pooled = http.Client{Transport: c.transport(cfg), CheckRedirect: c.checkRedirect}
	if c.base != nil {
		c.pooled.Transport = once{c.transport(cfg), new(atomic.Bool)}
	}
}

func (c *Client) transport(cfg Config) *http.Transport {
	dialer := &net.Dialer{
		Timeout:  dialTimeout,
		Resolver: cfg.Resolver,
		Control:  func(_, address string, _ syscall.RawConn) error { return c.named.check(address) },
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			return counted(conn, address, err)
		},
		TLSClientConfig:        &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		DisableCompression:     true,
		MaxConnsPerHost:        cmp.Or(cfg.MaxConns, defaultMaxConns),
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// NewRequest makes a request for Do. For a dependency, the target is an absolute
// path with an optional query, which is appended to the path of the
// dependency's URL; otherwise it is an absolute URL. A target must be
// percent-encoded. It is Invalid if it is not, and, for a dependency, if a
// segment of its path is "." or ".." in any encoding: servers do not agree on
// what those mean, so they could leave the dependency's path. It is Denied if it
// names a host that is not allowed.
//
// As in net/http, a body of a known type sets ContentLength and GetBody; for
// others the caller may. Every error is an *Error.
func (c *Client) NewRequest(ctx context.Context, method, target string, body io.Reader) (*http.Request, error) {
	u, err := c.resolve(target)
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, method, "/", body)
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	req.URL, req.Host = u, u.Host
	if err := c.check(req); err != nil {
		return nil, c.refuse(ctx, err)
	}
	return req, nil
}

func (c *Client) resolve(target string) (*url.URL, error) {
	if c.base != nil {
		return join(c.base, target)
	}
	return parseAbsolute(target)
}

// check refuses a request that must not be sent, whoever made it.
func (c *Client) check(req *http.Request) *Error {
	if c.closed.Load() {
		return &Error{Kind: Canceled, Err: errors.New("the client is closed")}
	}
	if req.Method == http.MethodConnect || req.Method == http.MethodTrace {
		return &Error{Kind: Invalid, Err: fmt.Errorf("the method %s concerns connections", req.Method)}
	}
	if err := c.allowed.check(req.URL); err != nil {
		return err
	}
	if c.base != nil && !below(c.base, req.URL) {
		return &Error{Kind: Denied, Err: errors.New("the path leaves the dependency's URL")}
	}
	return nil
}

// Do sends a request of NewRequest and returns when the head of the answer is
// there. Any status is an answer. The context bounds everything until the end
// of the answer's body, which the caller closes. The request is not changed;
// Host and the fields that belong to a connection (RFC 9110, section 7.6.1) are
// not sent, and those of the answer are left out.
//
// A client of a dependency sends a request once, and whoever counts the attempts
// decides about another. A plain one sends an idempotent request again, like
// net/http, if a kept connection turns out to have been closed by the server.
//
// Every error is an *Error; so are those of reading the body.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.do(&c.pooled, req) }

// DoOnce is Do over a connection of its own: a probe tells nothing about a kept
// connection.
func (c *Client) DoOnce(req *http.Request) (*http.Response, error) { return c.do(&c.single, req) }

func (c *Client) do(client *http.Client, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := c.check(req); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as after every other error
		}
		return nil, c.refuse(ctx, err)
	}
	a := new(attempt)
	resp, err := client.Do(outgoing(a.trace(ctx), req))
	if err == nil {
		err = c.checkAnswer(resp)
	}
	if err != nil {
		return nil, c.refuse(ctx, a.failure(ctx, err))
	}
	resp.Header = endToEnd(resp.Header)
	resp.Body = &body{resp.Body, ctx}
	return resp, nil
}

// outgoing returns what is sent of a request.
func outgoing(ctx context.Context, req *http.Request) *http.Request {
	out := req.WithContext(ctx)
	out.Header = endToEnd(req.Header)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{"edgehost"} // some services refuse requests without one
	}
	out.Host = ""
	out.Close = false
	out.TransferEncoding = nil
	return out
}

// refuse logs a denial.
func (c *Client) refuse(ctx context.Context, err *Error) error {
	if err.Kind == Denied {
		c.log.WarnContext(ctx, "egress denied", "error", err.Err)
	}
	return err
}

// Close closes idle connections and refuses further requests as Canceled. Those
// under way go on, and their connections are closed after them. A second call
// does nothing.
func (c *Client) Close() {
	c.closed.Store(true)
	c.pooled.CloseIdleConnections()
	c.single.CloseIdleConnections()
}
