package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// An origin is where a URL leads: scheme, host and port (RFC 6454). Two URLs
// lead to the same place if their origins are equal.
type origin struct {
	scheme string // http or https
	host   string // lower case; an address in its shortest form
	port   uint16 // the scheme's, if the URL has none
}

var (
	errScheme   = errors.New("the scheme is not http or https")
	errUserinfo = errors.New("a URL must not carry credentials")
	errHost     = errors.New("the host is neither a name in ASCII (xn--… for others) nor an address")
	errPort     = errors.New("the port is not between 1 and 65535")
)

func originOf(u *url.URL) (origin, error) {
	if u.Scheme != "http" && u.Scheme != "https" {
		return origin{}, errScheme
	}
	if u.User != nil {
		return origin{}, errUserinfo
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return origin{}, err
	}
	defaultPort := "443"
	if u.Scheme == "http" {
		defaultPort = "80"
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), defaultPort), 10, 16)
	if err != nil || port == 0 {
		return origin{}, errPort
	}
	return origin{u.Scheme, host, uint16(port)}, nil
}

// canonicalHost accepts addresses and names in ASCII. A name whose last label is
// a number is neither: some resolvers read "127.1" and "0x7f000001" as addresses.
func canonicalHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", errHost
		}
		return addr.Unmap().String(), nil
	}
	host = strings.ToLower(host)
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if last = label; !validLabel(label) {
			return "", errHost
		}
	}
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") || len(host) > 253 {
		return "", errHost
	}
	return host, nil
}

// validLabel allows the underscore, which host names must not have and many do.
func validLabel(label string) bool {
	for _, c := range []byte(label) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return label != "" && len(label) <= 63
}

// A rule is one entry of an allow list.
type rule struct {
	origin
	below bool // the names below the host, and not itself
}

// parseRule reads "[SCHEME://][*.]HOST[:PORT]".
func parseRule(entry string) (rule, error) {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		scheme, rest = "https", entry
	}
	rest, below := strings.CutPrefix(rest, "*.")
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return rule{}, errHost
	}
	if u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(rest, "#") {
		return rule{}, errors.New("an entry is a host with an optional port, without a path")
	}
	o, err := originOf(u)
	if err != nil {
		return rule{}, err
	}
	return rule{o, below}, checkRule(o, below)
}

// checkRule refuses hosts that every dial would refuse, or that cannot be meant.
func checkRule(o origin, below bool) error {
	if o.host == "localhost" {
		return errors.New("localhost is loopback: only a dependency may name it")
	}
	addr, _ := netip.ParseAddr(o.host)
	if !addr.IsValid() {
		return nil // a name
	}
	if below {
		return errors.New("there is nothing below an address")
	}
	if kind := special(addr); kind != "" {
		return fmt.Errorf("the address is %s: only a dependency may name it", kind)
	}
	return nil
}

func (r rule) allows(o origin) bool {
	if !r.below {
		return r.origin == o
	}
	name, ok := strings.CutSuffix(o.host, "."+r.host)
	return ok && name != "" && r.scheme == o.scheme && r.port == o.port
}

// An allowList is the rules of a client. Nothing else may be reached.
type allowList []rule

// check returns a Denied error for a URL that leads elsewhere.
func (l allowList) check(u *url.URL) *Error {
	o, err := originOf(u)
	if err != nil {
		return &Error{Kind: Denied, Err: fmt.Errorf("host %q: %w", u.Host, err)}
	}
	for _, r := range l {
		if r.allows(o) {
			return nil
		}
	}
	return &Error{Kind: Denied, Err: fmt.Errorf("%s host %q is not allowed", u.Scheme, u.Host)}
}
