package egress_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

// redirector answers /STATUS?URL with the redirect, and other paths with 204.
func redirector(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/loop":
		w.Header().Set("Location", "/loop")
		w.WriteHeader(http.StatusFound)
	case "/302", "/303", "/307":
		w.Header().Set("Location", r.URL.RawQuery)
		w.WriteHeader(int(r.URL.Path[1]-'0')*100 + int(r.URL.Path[3]-'0'))
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func TestADependencyCannotSendAGuestElsewhere(t *testing.T) {
	server, other := serve(t, redirector), serve(t, ok)
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, target := range []string{
		other.URL + "/",
		"http://127.0.0.1/",
		"http://localhost" + port + "/",
		"http://169.254.169.254/latest/meta-data/",
		"http://[fd00:ec2::254]/",
		"https://127.0.0.1" + port + "/",
		"//evil.example/",
		"http://user@127.0.0.1" + port + "/",
		"http://127.0.0.1" + port + "@evil.example/",
		"ftp://127.0.0.1" + port + "/",
		"mailto:someone@example.com",
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			t.Run(method+" "+target, func(t *testing.T) {
				var log bytes.Buffer
				c := dependency(t, server.URL, egress.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				err := failure(c, request(t, c, method, "/302?"+target, nil))
				wantFailure(t, err, egress.Denied, abi.Denied, true)
				if n := strings.Count(log.String(), "egress denied"); n != 1 {
					t.Errorf("logged %q", log.String())
				}
			})
		}
	}
	if len(other.seen()) != 0 {
		t.Errorf("the other server saw %v", other.seen())
	}
}

func TestADependencyMayRedirectWithinItself(t *testing.T) {
	for name, tc := range map[string]struct {
		method, target string
		body           io.Reader
		status         int
		seen           []string
	}{
		"a GET is followed":                       {"GET", "/302?/there", nil, 204, []string{"GET /302?/there", "GET /there"}},
		"a HEAD is followed":                      {"HEAD", "/307?/there", nil, 204, []string{"HEAD /307?/there", "HEAD /there"}},
		"a POST is the caller's":                  {"POST", "/303?/there", strings.NewReader("x"), 303, []string{"POST /303?/there"}},
		"a POST is not sent again":                {"POST", "/307?/there", strings.NewReader("x"), 307, []string{"POST /307?/there"}},
		"a DELETE is the caller's":                {"DELETE", "/302?/there", nil, 302, []string{"DELETE /302?/there"}},
		"a redirect without a place is an answer": {"GET", "/302", nil, 302, []string{"GET /302"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, redirector)
			c := dependency(t, server.URL, egress.Config{})
			got := do(t, c, request(t, c, tc.method, tc.target, tc.body))
			if diff := cmp.Diff(tc.seen, server.seen()); diff != "" || got.status != tc.status {
				t.Errorf("status %d, want %d; requests %s", got.status, tc.status, diff)
			}
		})
	}
}

func TestRedirectsEnd(t *testing.T) {
	server := serve(t, redirector)
	c := dependency(t, server.URL, egress.Config{})
	wantFailure(t, failure(c, request(t, c, "GET", "/loop", nil)), egress.AfterWrite, abi.DependencyFailed, true)
	if n := len(server.seen()); n != 11 {
		t.Errorf("the server saw %d requests, want the first and 10 redirects", n)
	}
}

// public serves names by local servers.
func public(c *egress.Client, servers map[string]*recorder) {
	c.DialWith(func(ctx context.Context, address string) (net.Conn, error) {
		server, ok := servers[address]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
}

func TestAPlainRequestFollowsOnlyToAllowedHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		method, location string
		b                []string // what the second server sees
		denied           bool
	}{
		"to an allowed host":              {"GET", "http://b.example/there", []string{"GET /there"}, false},
		"a POST becomes a GET":            {"POST", "http://b.example/there", []string{"GET /there"}, false},
		"to a host that is not allowed":   {"GET", "http://c.example/", nil, true},
		"to a scheme that is not allowed": {"GET", "https://b.example/", nil, true},
		"to a port that is not allowed":   {"GET", "http://b.example:8080/", nil, true},
		"to the host's own network":       {"GET", "http://127.0.0.1/", nil, true},
		"to the metadata service":         {"POST", "http://169.254.169.254/", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, redirector), serve(t, redirector)
			c := plain(t, egress.Config{}, "http://a.example", "http://b.example")
			public(c, map[string]*recorder{"a.example:80": a, "b.example:80": b})
			err := failure(c, request(t, c, tc.method, "http://a.example/303?"+tc.location, nil))
			if tc.denied {
				wantFailure(t, err, egress.Denied, abi.Denied, true)
			} else if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.b, b.seen()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABodyThatCannotBeSentAgainStaysWithTheFirstHost(t *testing.T) {
	a, b := serve(t, redirector), serve(t, redirector)
	c := plain(t, egress.Config{}, "http://a.example", "http://b.example")
	public(c, map[string]*recorder{"a.example:80": a, "b.example:80": b})
	stream := io.MultiReader(strings.NewReader("x"))
	got := do(t, c, request(t, c, "POST", "http://a.example/307?http://b.example/", stream))
	if got.status != http.StatusTemporaryRedirect || len(b.seen()) != 0 {
		t.Errorf("status %d, the other host saw %v", got.status, b.seen())
	}
	stream = io.MultiReader(strings.NewReader("x"))
	err := failure(c, request(t, c, "POST", "http://a.example/307?http://c.example/", stream))
	wantFailure(t, err, egress.Denied, abi.Denied, true)
}

func TestCredentialsDoNotCrossOrigins(t *testing.T) {
	private := http.Header{
		"Authorization": {"Bearer x"}, "Cookie": {"session=1"}, "X-Api-Key": {"x"}, "Edgehost-Fence": {"7"},
		"Accept": {"text/plain"},
	}
	header := func(t *testing.T, target string, servers ...*recorder) http.Header {
		t.Helper()
		c := plain(t, egress.Config{}, "http://a.example", "http://b.a.example")
		public(c, map[string]*recorder{"a.example:80": servers[0], "b.a.example:80": servers[1]})
		req := request(t, c, "GET", target, nil)
		req.Header = private
		do(t, c, req)
		return servers[len(servers)-1].last().Header
	}
	t.Run("within an origin they are kept", func(t *testing.T) {
		a, b := serve(t, redirector), serve(t, redirector)
		if got := header(t, "http://a.example/302?/there", a, b, a); got.Get("X-Api-Key") != "x" || got.Get("Authorization") == "" {
			t.Errorf("got %v", got)
		}
	})
	want := http.Header{"Accept": {"text/plain"}, "User-Agent": {"edgehost"}}
	t.Run("a host below is another origin", func(t *testing.T) {
		a, b := serve(t, redirector), serve(t, redirector)
		if diff := cmp.Diff(want, header(t, "http://a.example/302?http://b.a.example/", a, b)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("coming back does not restore them", func(t *testing.T) {
		a, b := serve(t, redirector), serve(t, redirector)
		got := header(t, "http://a.example/302?http://b.a.example/302?http://a.example/302?/there", a, b, a)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRedirectsDoNotTellTheURLBefore(t *testing.T) {
	for name, own := range map[string][]string{"the guest sends none": nil, "the guest sends its own": {"http://shop.example/"}} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, redirector)
			c := dependency(t, server.URL, egress.Config{})
			req := request(t, c, "GET", "/302?/307?/there", nil)
			if own != nil {
				req.Header["Referer"] = own
			}
			do(t, c, req)
			if got := server.last(); got.URL.Path != "/there" || !cmp.Equal(own, got.Header["Referer"]) {
				t.Errorf("%s got the Referer %q, want %q", got.URL, got.Header["Referer"], own)
			}
		})
	}
}
