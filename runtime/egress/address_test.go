package egress_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

// resolver asks a name server on this machine, for which every name has the
// addresses.
func resolver(t *testing.T, addrs ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		query := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(reply(query[:n], addrs), from)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// reply returns the answer to a query for A or AAAA records (RFC 1035, section
// 4.1).
func reply(query []byte, addrs []string) []byte {
	const header, typeA, typeAAAA = 12, 1, 28
	end := header + bytes.IndexByte(query[header:], 0) + 1 + 4 // of the question
	kind := binary.BigEndian.Uint16(query[end-4:])
	message := bytes.Clone(query[:end])
	var count uint16
	for _, s := range addrs {
		addr := netip.MustParseAddr(s)
		if (kind != typeA || !addr.Is4()) && (kind != typeAAAA || !addr.Is6()) {
			continue
		}
		count++
		message = append(message, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 0) // the question's name, class IN, TTL 0
		message = binary.BigEndian.AppendUint16(message, uint16(addr.BitLen()/8))
		message = append(message, addr.AsSlice()...)
	}
	copy(message[2:], []byte{0x81, 0x80, 0, 1})
	copy(message[6:], []byte{byte(count >> 8), byte(count), 0, 0, 0, 0})
	return message
}

// specialAddresses are addresses that no name may lead to.
func specialAddresses() []string {
	return []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
		"127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255",
		"192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
		"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe",
		"64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
		"2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	}
}

// publicAddresses are addresses next to those.
func publicAddresses() []string {
	return []string{
		"1.0.0.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"168.63.129.15", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
		"192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700:4700::1111", "2a00::1", "3ffe::1", "64:ff9b::808:808",
	}
}

// literal is an address as the host of a URL.
func literal(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]"
	}
	return addr
}

func TestANameCannotLeadToASpecialAddress(t *testing.T) {
	for _, addr := range specialAddresses() {
		t.Run(addr, func(t *testing.T) {
			cfg := egress.Config{Resolver: resolver(t, addr)}
			for name, c := range map[string]*egress.Client{
				"dependency": dependency(t, "http://name.test:9", cfg),
				"plain":      plain(t, cfg, "http://name.test:9"),
			} {
				target := map[string]string{"dependency": "/", "plain": "http://name.test:9/"}[name]
				wantFailure(t, failure(c, request(t, c, "GET", target, nil)), egress.Denied, abi.Denied, false)
			}
		})
	}
}

func TestANameCannotLeadToAServerOnThisMachine(t *testing.T) {
	server := serve(t, ok)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	var log bytes.Buffer
	cfg := egress.Config{Resolver: resolver(t, "127.0.0.1", "::1"), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c := dependency(t, "http://payments.test:"+port, cfg)
	wantFailure(t, failure(c, request(t, c, "GET", "/", nil)), egress.Denied, abi.Denied, false)
	if len(server.seen()) != 0 {
		t.Errorf("the server saw %v", server.seen())
	}
	if want := "payments.test:" + port + ": address "; !strings.Contains(log.String(), want) {
		t.Errorf("logged %q", log.String())
	}
}

func TestANameWithoutAddressIsConnect(t *testing.T) {
	c := dependency(t, "http://name.test", egress.Config{Resolver: resolver(t)})
	wantFailure(t, failure(c, request(t, c, "GET", "/", nil)), egress.Connect, abi.DependencyFailed, false)
}

func TestOnlyADependencyNamesASpecialAddress(t *testing.T) {
	for _, addr := range specialAddresses() {
		if _, err := egress.NewPlain([]string{literal(addr)}, egress.Config{}); err == nil {
			t.Errorf("%s is allowed", addr)
		}
	}
	for _, addr := range publicAddresses() {
		plain(t, egress.Config{}, literal(addr))
	}
}

func TestADependencyReachesTheAddressThatItNames(t *testing.T) {
	server := serve(t, ok)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]"} {
		t.Run(host, func(t *testing.T) {
			fetch(t, dependency(t, "http://"+host+":"+port, egress.Config{}), "/")
		})
	}
	for _, host := range []string{"10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "[::1]"} {
		dependency(t, "http://"+host, egress.Config{})
	}
}

func TestANameLeadsToAnAddressInTheRangesOfItsDependency(t *testing.T) {
	server := serve(t, ok)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, addresses := range [][]string{{"127.0.0.0/8"}, {"10.0.0.0/8", "127.0.0.1"}, {"::ffff:127.0.0.1"}} {
		cfg := egress.Config{Resolver: resolver(t, "127.0.0.1"), Addresses: addresses}
		fetch(t, dependency(t, "http://payments.test:"+port, cfg), "/")
	}
	cfg := egress.Config{Resolver: resolver(t, "127.0.0.1"), Addresses: []string{"10.0.0.0/8", "127.0.0.2", "::1"}}
	c := dependency(t, "http://payments.test:"+port, cfg)
	wantFailure(t, failure(c, request(t, c, "GET", "/", nil)), egress.Denied, abi.Denied, false)
}

func TestARangeNamesOnlyAddressesOfAnOrdinaryNetwork(t *testing.T) {
	for _, test := range []struct {
		addresses       string
		allowed, denied []string
	}{
		{"10.0.0.0/8", []string{"10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3", "8.8.8.8"}, []string{"127.0.0.1", "192.168.0.1", "fd00::1"}},
		{"192.0.2.7", []string{"192.0.2.7"}, []string{"192.0.2.8"}},
		{"100.64.0.0/10", []string{"100.64.0.1"}, []string{"100.100.100.200"}},
		{"100.100.100.200", []string{"100.100.100.200"}, []string{"100.100.100.201"}},
		{"169.254.169.254", []string{"169.254.169.254"}, []string{"169.254.169.253"}},
		{"fd00::/8", []string{"fd00::1", "fdff::1"}, []string{"fc00::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"}},
		{"fd00:ec2::254", []string{"fd00:ec2::254"}, []string{"fd00:ec2::23"}},
		{"fc00::/6", []string{"fd00::1"}, []string{"fe80::1", "fec0::1", "ff02::1"}},
		{"64:ff9b::a00:0/104", []string{"64:ff9b::a00:1"}, []string{"64:ff9b::a9fe:a9fe", "10.0.0.1"}},
	} {
		c := dependency(t, "http://payments.test", egress.Config{Addresses: []string{test.addresses}})
		for _, addr := range test.allowed {
			if err := c.CheckDial(literal(addr) + ":80"); err != nil {
				t.Errorf("%s: %s: %v", test.addresses, addr, err)
			}
		}
		for _, addr := range test.denied {
			if err := c.CheckDial(literal(addr) + ":80"); abi.CodeOf(err) != abi.Denied {
				t.Errorf("%s: %s: got %v, want Denied", test.addresses, addr, err)
			}
		}
	}
}

func TestAddressesThatCannotBeMeantAreErrors(t *testing.T) {
	for entry, want := range map[string]string{
		"":                    "neither an address nor a range",
		"payments.test":       "neither",
		"10.0.0.0/33":         "neither",
		"10.0.0.1-10.0.0.9":   "neither",
		"fe80::1%eth0":        "neither",
		"::ffff:10.0.0.0/104": "neither",
		"10.0.0.7/8":          "begins at 10.0.0.0",
		"8.8.8.8":             "public",
		"8.0.0.0/6":           "public",
		"0.0.0.0/0":           "unspecified",
		"::/0":                "unspecified",
		"224.0.0.1":           "multicast",
		"255.255.255.255":     "broadcast",
		"169.254.0.0/16":      "link-local, whose addresses are named one by one",
		"fe80::/10":           "link-local",
		"fd00:ec2::/32":       "metadata",
		"240.0.0.0/4":         "reserved",
	} {
		_, err := egress.NewDependency("http://payments.test", egress.Config{Addresses: []string{"10.0.0.0/8", entry}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want something about %q", entry, err, want)
		}
	}
	if _, err := egress.NewPlain(nil, egress.Config{Addresses: []string{"10.0.0.0/8"}}); err == nil {
		t.Error("an allow list may have addresses")
	}
}
