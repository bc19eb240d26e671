package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// special returns the kind of the range that addr lies in, or "" if it is an
// address that a stranger's server may have. The ranges are those of the IANA
// special-purpose address registries that are not globally reachable, and some
// that are but lead to the host or its platform. Of IPv6 only 2000::/3 has been
// allocated for global unicast, so everything else is special; an IPv4 address
// inside an IPv6 address counts as itself.
func special(addr netip.Addr) string {
	if inner, ok := embedded(addr); ok {
		addr = inner
	}
	if addr.Is6() && !netip.MustParsePrefix("2000::/3").Contains(addr) {
		return ipv6Kind(addr)
	}
	for _, r := range ranges() {
		if r.prefix.Contains(addr) {
			return r.kind
		}
	}
	return ""
}

// embedded returns the IPv4 address that packets to addr end at: of the mapped
// form (RFC 4291, section 2.5.5.2), and of NAT64's well-known prefix (RFC 6052),
// which names stand for on networks without IPv4.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if addr.Is4In6() {
		return addr.Unmap(), true
	}
	if netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:])), true
	}
	return netip.Addr{}, false
}

func ipv6Kind(addr netip.Addr) string {
	switch {
	case isIPv6Metadata(addr):
		return "metadata"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	}
	return "reserved"
}

// isIPv6Metadata reports whether a platform's own services have the address. They
// lie among the private ones.
func isIPv6Metadata(addr netip.Addr) bool {
	p := netip.MustParsePrefix
	for _, prefix := range []netip.Prefix{
		p("fd00:ec2::/32"),          // Amazon
		p("fd20:ce::254/128"),       // Google
		p("fd00:c1::a9fe:a9fe/128"), // Oracle
		p("fd00:42::42/128"),        // Scaleway
	} {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

type addressRange struct {
	prefix netip.Prefix
	kind   string
}

func ranges() []addressRange {
	p := netip.MustParsePrefix
	return []addressRange{
		{p("100.100.100.200/32"), "metadata"},   // Alibaba Cloud, inside 100.64.0.0/10
		{p("0.0.0.0/8"), "unspecified"},         // RFC 791: "this network"; 0.0.0.0 connects to the host itself
		{p("10.0.0.0/8"), "private"},            // RFC 1918
		{p("100.64.0.0/10"), "shared"},          // RFC 6598: carrier-grade NAT
		{p("127.0.0.0/8"), "loopback"},          // RFC 1122
		{p("168.63.129.16/32"), "metadata"},     // Azure's platform endpoint, a public address
		{p("169.254.0.0/16"), "link-local"},     // RFC 3927; metadata services (169.254.169.254)
		{p("172.16.0.0/12"), "private"},         // RFC 1918
		{p("192.0.0.0/24"), "reserved"},         // RFC 6890; metadata services (192.0.0.192)
		{p("192.0.2.0/24"), "documentation"},    // RFC 5737
		{p("192.88.99.0/24"), "reserved"},       // RFC 7526: 6to4 relays
		{p("192.168.0.0/16"), "private"},        // RFC 1918
		{p("198.18.0.0/15"), "benchmarking"},    // RFC 2544
		{p("198.51.100.0/24"), "documentation"}, // RFC 5737
		{p("203.0.113.0/24"), "documentation"},  // RFC 5737
		{p("224.0.0.0/4"), "multicast"},         // RFC 5771
		{p("255.255.255.255/32"), "broadcast"},  // RFC 919
		{p("240.0.0.0/4"), "reserved"},          // RFC 1112
		{p("2001::/23"), "reserved"},            // RFC 2928: protocol assignments, Teredo with an IPv4 address inside
		{p("2001:db8::/32"), "documentation"},   // RFC 3849
		{p("2002::/16"), "reserved"},            // RFC 3056: 6to4, with an IPv4 address inside
		{p("3fff::/20"), "documentation"},       // RFC 9637
	}
}

// A named address is one that a dependency names itself, by its URL or beside it.
// The zero value names none. That the port is the URL's is up to the allow list.
type named struct {
	addr     netip.Addr
	loopback bool // the name is localhost: every loopback address
	prefixes []netip.Prefix
}

// namedBy returns what an origin names.
func namedBy(o origin) named {
	addr, _ := netip.ParseAddr(o.host) // the zero Addr, which equals no other, for a name
	return named{addr: addr, loopback: o.host == "localhost"}
}

// coverable reports whether a range may name the addresses of a kind. Others are
// named one by one, if at all: nobody who opens a network means the metadata
// service in it, whose answers are credentials.
func coverable(kind string) bool {
	switch kind {
	case "private", "shared", "loopback", "documentation", "benchmarking":
		return true
	}
	return false
}

// noServer reports whether addresses of a kind are those of no server.
func noServer(kind string) bool {
	return kind == "unspecified" || kind == "multicast" || kind == "broadcast"
}

// parseAddresses reads an address or a range of addresses.
func parseAddresses(entry string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(entry)
	if addr, addrErr := netip.ParseAddr(entry); addrErr == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch kind := special(prefix.Addr()); {
	case err != nil || prefix.Addr().Is4In6():
		return netip.Prefix{}, errors.New(`neither an address nor a range such as "10.0.0.0/8"`)
	case prefix != prefix.Masked():
		return netip.Prefix{}, fmt.Errorf("the range of this size begins at %s", prefix.Masked().Addr())
	case kind == "":
		return netip.Prefix{}, errors.New("it is public, and needs not be named")
	case noServer(kind):
		return netip.Prefix{}, fmt.Errorf("it is %s, not that of a server", kind)
	case !prefix.IsSingleIP() && !coverable(kind):
		return netip.Prefix{}, fmt.Errorf("it is %s, whose addresses are named one by one", kind)
	}
	return prefix, nil
}

func (n named) covers(addr netip.Addr, kind string) bool {
	addr = addr.Unmap()
	return addr == n.addr || n.loopback && addr.IsLoopback() ||
		slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool {
			return p.Contains(addr) && (p.IsSingleIP() || coverable(kind))
		})
}

// check refuses the dial to a resolved address, host:port, that is special and
// not named.
func (n named) check(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Error{Kind: Denied, Err: fmt.Errorf("address %q: %w", address, err)}
	}
	kind := special(to.Addr())
	if kind == "" || n.covers(to.Addr(), kind) {
		return nil
	}
	return &Error{Kind: Denied, Err: fmt.Errorf("address %s is %s", to.Addr(), kind)}
}
