package egress_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

func TestATargetIsJoinedToTheURL(t *testing.T) {
	for _, tc := range []struct{ base, target, want string }{
		{"http://h.example", "/", "http://h.example/"},
		{"http://h.example/", "/a/b", "http://h.example/a/b"},
		{"http://h.example/v1", "/", "http://h.example/v1/"},
		{"http://h.example/v1/", "/a?b=c", "http://h.example/v1/a?b=c"},
		{"http://h.example/v1", "/a?", "http://h.example/v1/a?"},
		{"http://h.example/v1", "/a?b=/../c&d=//e", "http://h.example/v1/a?b=/../c&d=//e"},
		{"http://h.example/a%2Fb", "/c%2Fd", "http://h.example/a%2Fb/c%2Fd"},
		{"http://h.example/v1", "/a%20b", "http://h.example/v1/a%20b"},
		{"http://h.example", "/a//b", "http://h.example/a//b"},
		{"http://h.example", "/@evil.example", "http://h.example/@evil.example"},
		{"http://h.example", "/http://evil.example/", "http://h.example/http://evil.example/"},
		{"http://h.example", "/...", "http://h.example/..."},
		{"http://h.example", "/a..b/.c", "http://h.example/a..b/.c"},
		{"http://h.example:8080", "/%E2%82%AC", "http://h.example:8080/%E2%82%AC"},
	} {
		req, err := dependency(t, tc.base, egress.Config{}).NewRequest(t.Context(), "GET", tc.target, nil)
		if err != nil {
			t.Errorf("%s + %s: %v", tc.base, tc.target, err)
		} else if got := req.URL.String(); got != tc.want {
			t.Errorf("%s + %s = %s, want %s", tc.base, tc.target, got, tc.want)
		}
	}
}

func TestATargetCannotLeaveTheURL(t *testing.T) {
	c := dependency(t, "http://h.example/v1", egress.Config{})
	for _, target := range []string{
		"", "a", "?a", "*", "h.example:80", "http://h.example/v1/a", "http://evil.example/", "@evil.example/", ":80/",
		"//evil.example/", "///evil.example", `/\evil.example/../`, "/..", "/.", "/a/../b", "/a/./b", "/a/..", "/a/..?b",
		"/%2e%2e/a", "/%2E./a", "/.%2e", "/%2e", "/a%2f..%2fb", `/a\..\b`, "/a%5c..%5cb", "/..;/a", "/a;x/..;y=z/b",
		"/..%3Bx/a", "/a b", "/a\tb", "/a\r\nX: y", "/a\x00", "/a\x7f", "/é", "/a?é", "/a#b", "/%", "/%zz", "/a%2",
	} {
		_, err := c.NewRequest(t.Context(), "GET", target, nil)
		if err == nil {
			t.Errorf("%q is accepted", target)
			continue
		}
		wantFailure(t, err, egress.Invalid, abi.Invalid, false)
	}
}

func TestARequestOfAnotherClientIsDenied(t *testing.T) {
	server := serve(t, ok)
	c := dependency(t, server.URL+"/v1", egress.Config{})
	for _, target := range []string{"/", "/v10/", "/v1", "/v1/../admin", "//evil.example/"} {
		req := request(t, c, "GET", "/", strings.NewReader(""))
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if req.URL = u; u.Host == "" {
			u.Scheme, u.Host = "http", server.Listener.Addr().String()
		}
		wantFailure(t, failure(c, req), egress.Denied, abi.Denied, false)
	}
	if len(server.seen()) != 0 {
		t.Errorf("the server saw %v", server.seen())
	}
}

func TestTheURLOfADependencyIsChecked(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                "scheme",
		"h.example":                       "scheme",
		"ftp://h.example":                 "scheme",
		"http://":                         "host",
		"http://user:secret@h.example":    "credentials",
		"http://user:sec%zzret@h.example": "invalid",
		"http://h.example?a":              "query",
		"http://h.example?":               "query",
		"http://h.example#a":              "fragment",
		"http://h.example/a/../b":         "segments",
		"http://h.example:0":              "port",
		"http://h.example:65536":          "port",
		"http://127.1:80":                 "host",
		"http://2130706433":               "host",
		"http://0x7f000001":               "host",
		"http://h.0x7f":                   "host",
		"http://bücher.example":           "ASCII",
		"http://h..example":               "host",
		"http://h.example.":               "host",
		"http://[fe80::1%25eth0]":         "host",
		"http://0.0.0.0:8080":             "unspecified",
		"http://[::]:8080":                "unspecified",
		"http://[::ffff:0.0.0.0]":         "unspecified",
		"http://224.0.0.1":                "multicast",
		"http://255.255.255.255":          "broadcast",
	} {
		_, err := egress.NewDependency(raw, egress.Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want something about %q", raw, err, want)
		} else if strings.Contains(err.Error(), "sec") {
			t.Errorf("%q: the error tells the password: %v", raw, err)
		}
	}
}

func TestAnAllowListAllowsWhatItSays(t *testing.T) {
	for entry, urls := range map[string]struct{ allowed, denied []string }{
		"shop.example": {
			[]string{"https://shop.example", "https://shop.example:443/a?b", "https://SHOP.example/#f", "https://shop.example:0443"},
			[]string{
				"http://shop.example", "https://shop.example:8443", "https://a.shop.example", "https://shop.example.evil.example",
				"https://evilshop.example", "https://shop.example@evil.example", "https://x@shop.example", "https://shop.example.",
				"https://shop.example%2eevil.example", "ws://shop.example", "https://shop%2eexample",
			},
		},
		"shop.example:8443":         {[]string{"https://shop.example:8443"}, []string{"https://shop.example", "http://shop.example:8443"}},
		"http://shop.example":       {[]string{"http://shop.example", "http://shop.example:80"}, []string{"https://shop.example", "http://shop.example:443"}},
		"https://Shop.Example:9000": {[]string{"https://shop.example:9000"}, []string{"https://shop.example"}},
		"*.shop.example": {
			[]string{"https://a.shop.example", "https://a.b.shop.example"},
			[]string{
				"https://shop.example", "https://evilshop.example", "https://.shop.example", "https://a.shop.example:444",
				"http://a.shop.example", "https://a.shop.example.evil.example", "https://evil.example/.shop.example",
				"https://evil.example?.shop.example", "https://evil.example#.shop.example", `https://evil.example\.shop.example`,
			},
		},
		"http://*.shop.example:81": {[]string{"http://a.shop.example:81"}, []string{"http://a.shop.example"}},
		"8.8.8.8":                  {[]string{"https://8.8.8.8", "https://[::ffff:8.8.8.8]"}, []string{"https://8.8.8.9", "https://8.8.8.8.evil.example"}},
		"[2606:4700::1111]:8443":   {[]string{"https://[2606:4700:0::1111]:8443"}, []string{"https://[2606:4700::1111]"}},
	} {
		c := plain(t, egress.Config{}, entry)
		for _, u := range urls.allowed {
			if _, err := c.NewRequest(t.Context(), "GET", u, nil); err != nil {
				t.Errorf("%s: %s: %v", entry, u, err)
			}
		}
		for _, u := range urls.denied {
			_, err := c.NewRequest(t.Context(), "GET", u, nil)
			if code := abi.CodeOf(err); code != abi.Denied && code != abi.Invalid {
				t.Errorf("%s: %s: got %v", entry, u, err)
			}
		}
	}
}

func TestAnEmptyAllowListAllowsNothing(t *testing.T) {
	_, err := plain(t, egress.Config{}).NewRequest(t.Context(), "GET", "https://shop.example/", nil)
	wantFailure(t, err, egress.Denied, abi.Denied, false)
}

func TestEveryWrongEntryIsReported(t *testing.T) {
	entries := []string{
		"", "*", "*.", "*.8.8.8.8", "shop.example/", "shop.example/a", "shop.example?a", "shop.example#a", "a@shop.example",
		"ftp://shop.example", "://shop.example", "shop.example:0", "shop.example:x", "shop.*.example", "shop.example.",
		"sh op.example", "bücher.example", "127.1", "localhost", "http://localhost:80", "10.0.0.1", "[::1]", "*.*.example",
	}
	_, err := egress.NewPlain(append(entries, "good.example"), egress.Config{})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, err := range joined.Unwrap() {
		quoted := strings.TrimPrefix(err.Error(), "egress: allowed host ")
		quoted, _, _ = strings.Cut(quoted, `": `)
		got = append(got, strings.TrimPrefix(quoted, `"`))
	}
	if diff := cmp.Diff(entries, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzTarget looks for a target that leaves the URL of its dependency.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{"/", "//a", "/a/../b?c", "/%2e%2e/", "/a%2fb", "http://a/b", "/@a:1", "/..;/a", `/\a`} {
		f.Add(target)
	}
	c, err := egress.NewDependency("https://h.example:8443/v1/x%2Fy", egress.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		req, err := c.NewRequest(t.Context(), "GET", target, nil)
		if err != nil {
			if code := abi.CodeOf(err); code != abi.Invalid {
				t.Errorf("%q: %v", target, err)
			}
			return
		}
		sent := req.URL.String()
		if sent != "https://h.example:8443/v1/x%2Fy"+target && !strings.Contains(sent, "%") {
			t.Errorf("%q became %q", target, sent)
		}
		again, err := url.Parse(sent) // as the next reader would
		if err != nil || again.Host != "h.example:8443" || again.User != nil {
			t.Fatalf("%q leads to %q, %v", target, sent, err)
		}
		if clean := again.JoinPath().Path; !strings.HasPrefix(clean, "/v1/x/y") {
			t.Errorf("%q leads to the path %q", target, clean)
		}
		if strings.ContainsAny(req.URL.RequestURI(), " \r\n\x00") {
			t.Errorf("%q is written as %q", target, req.URL.RequestURI())
		}
	})
}

// FuzzAllowList looks for a URL that an allow list takes for another host's.
func FuzzAllowList(f *testing.F) {
	for _, target := range []string{
		"https://shop.example/", "https://a.sub.example:443", "https://shop.example@evil/", "https://shop.example.evil/",
		"https://evil/.sub.example", "http://shop.example", `https://shop.example\@evil`, "https://shop.example%00.evil",
	} {
		f.Add(target)
	}
	c, err := egress.NewPlain([]string{"shop.example", "*.sub.example"}, egress.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		req, err := c.NewRequest(t.Context(), "GET", target, nil)
		if err != nil {
			return
		}
		host := strings.ToLower(req.URL.Hostname())
		if req.URL.Scheme != "https" || host != "shop.example" && !strings.HasSuffix(host, ".sub.example") {
			t.Errorf("%q leads to %s", target, req.URL)
		}
		if port := strings.TrimLeft(req.URL.Port(), "0"); port != "" && port != "443" || req.URL.User != nil {
			t.Errorf("%q leads to %s", target, req.URL)
		}
	})
}
