package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// parseBase reads the URL of a dependency.
func parseBase(rawURL string) (*url.URL, origin, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, origin{}, errors.Unwrap(err) // without the URL, which may hold a password
	}
	o, err := originOf(u)
	if err != nil {
		return nil, origin{}, err
	}
	if u.RawQuery != "" || u.ForceQuery || strings.Contains(rawURL, "#") {
		return nil, origin{}, errors.New("the URL must not have a query or fragment")
	}
	if hasDotSegment(u.EscapedPath()) {
		return nil, origin{}, errDotSegment
	}
	if addr, err := netip.ParseAddr(o.host); err == nil {
		if kind := special(addr); noServer(kind) {
			return nil, origin{}, fmt.Errorf("the address is %s, not that of a server", kind)
		}
	}
	return u, o, nil
}

var (
	errEncoding   = errors.New("the target must be percent-encoded")
	errDotSegment = errors.New(`the path must not have the segments "." and ".."`)
)

// join appends a target to the URL of a dependency. Whatever the target is, the
// result has base's origin, and a path that is below base's for every reader.
func join(base *url.URL, target string) (*url.URL, error) {
	if !encoded(target) || strings.Contains(target, "#") {
		return nil, errEncoding
	}
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		return nil, errors.New(`the target must begin with one "/"`)
	}
	t, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, errEncoding
	}
	if hasDotSegment(t.EscapedPath()) {
		return nil, errDotSegment
	}
	return &url.URL{
		Scheme:     base.Scheme,
		Host:       base.Host,
		Path:       strings.TrimSuffix(base.Path, "/") + t.Path,
		RawPath:    strings.TrimSuffix(base.EscapedPath(), "/") + t.EscapedPath(),
		RawQuery:   t.RawQuery,
		ForceQuery: t.ForceQuery,
	}, nil
}

// parseAbsolute reads the target of a plain request. Its fragment is not sent.
func parseAbsolute(target string) (*url.URL, error) {
	if !encoded(target) {
		return nil, errEncoding
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, errors.New("the target must be an absolute URL")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// encoded reports whether the target has only printable ASCII, as everything in
// a request line. The rest of the syntax is checked by net/url.
func encoded(target string) bool {
	return !strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' })
}

// below reports whether u is base, or below it for every reader.
func below(base, u *url.URL) bool {
	path := u.EscapedPath()
	return !hasDotSegment(path) && strings.HasPrefix(path, strings.TrimSuffix(base.EscapedPath(), "/")+"/")
}

// hasDotSegment reports whether some reader of the path finds "." or ".." in it.
// Servers decode before or after they split, take a backslash for a slash, and
// cut parameters off a segment ("/..;/").
func hasDotSegment(path string) bool {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return true
	}
	separator := func(r rune) bool { return r == '/' || r == '\\' }
	for segment := range strings.FieldsFuncSeq(decoded, separator) {
		name, _, _ := strings.Cut(segment, ";")
		if name == "." || name == ".." {
			return true
		}
	}
	return false
}
