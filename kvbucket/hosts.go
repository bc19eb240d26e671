package kvbucket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	// firstHost is how long a question to all hosts awaits its first answer, and
	// moreHosts how long each further one: they are under way at the same time.
	firstHost = time.Second
	moreHosts = 300 * time.Millisecond
)

// A HostInfo is what a host says of itself.
type HostInfo struct {
	Host    string    `json:"host"`
	Version string    `json:"version"`
	Address string    `json:"address"`
	Started time.Time `json:"started"` // by the host's clock
	// Of the requests of other hosts since then:
	Requests int `json:"requests"` // received
	Errors   int `json:"errors"`   // refused, or not acknowledged
	Running  int `json:"running"`  // being handled now
}

// Hosts asks who serves an address on this NATS, and returns those that answer
// before nothing has been heard for 300 ms, by name. None is no error. Errors:
// ErrUnavailable, ErrClosed, the context's.
func (c *Conn) Hosts(ctx context.Context) ([]HostInfo, error) {
	subject, err := micro.ControlSubject(micro.StatsVerb, serviceName, "")
	if err != nil {
		return nil, c.messengerError("hosts", err)
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, c.messengerError("hosts", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is gone
	if err := c.nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, c.messengerError("hosts", err)
	}
	hosts, err := c.collectHosts(ctx, sub)
	slices.SortFunc(hosts, func(a, b HostInfo) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Address, b.Address))
	})
	return hosts, err
}

func (c *Conn) collectHosts(ctx context.Context, sub *nats.Subscription) ([]HostInfo, error) {
	var hosts []HostInfo
	for patience := firstHost; ; patience = moreHosts {
		reply, err := nextMessage(ctx, sub, patience)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("kvbucket: hosts: %w", context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded) && c.nc.IsConnected(), errors.Is(err, nats.ErrNoResponders):
			return hosts, nil
		case err != nil:
			return nil, c.messengerError("hosts", err)
		}
		hosts = append(hosts, hostsIn(reply)...)
	}
}

func nextMessage(ctx context.Context, sub *nats.Subscription, patience time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// hostsIn returns the hosts that a service's statistics speak of: one for each
// address. Statistics of something else, which may have the same name, are passed
// over.
func hostsIn(reply *nats.Msg) []HostInfo {
	var stats micro.Stats
	if json.Unmarshal(reply.Data, &stats) != nil {
		return nil
	}
	var hosts []HostInfo
	for _, e := range stats.Endpoints {
		address, ok := strings.CutPrefix(e.Subject, hostSubject)
		var more listenerStatistics
		if !ok || json.Unmarshal(e.Data, &more) != nil {
			continue
		}
		hosts = append(hosts, HostInfo{
			Host: stats.Metadata[metadataHost], Version: stats.Metadata[metadataVersion], Address: address, Started: stats.Started,
			Requests: e.NumRequests, Errors: e.NumErrors, Running: more.Running,
		})
	}
	return hosts
}
