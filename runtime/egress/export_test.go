package egress

import (
	"context"
	"net"
	"net/http"
)

// DialWith lets tests serve public names from this machine, whose addresses
// every dial would refuse.
func (c *Client) DialWith(dial func(ctx context.Context, address string) (net.Conn, error)) {
	for _, client := range []*http.Client{&c.pooled, &c.single} {
		transport, ok := client.Transport.(*http.Transport)
		if !ok {
			transport = client.Transport.(once).Transport
		}
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := dial(ctx, address)
			return counted(conn, address, err)
		}
	}
}

// CheckDial decides about a dial without making it.
func (c *Client) CheckDial(address string) error { return c.named.check(address) }
