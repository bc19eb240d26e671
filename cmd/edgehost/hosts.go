package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// hostsCommand is `edgehost hosts`.
type hostsCommand struct {
	natsFlags `embed:""`
}

// Run executes the command.
func (c *hostsCommand) Run(ctx context.Context, t *terminal) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, _, err := c.dial(ctx, t, "hosts")
	if err != nil {
		return err
	}
	hosts, err := conn.Hosts(ctx)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("asking for the hosts: %w", err)
	}
	if hosts == nil {
		hosts = []kvbucket.HostInfo{} // [] in JSON
	}
	return t.print(hosts, func(out *tabwriter.Writer) {
		fmt.Fprintln(out, "HOST\tVERSION\tUPTIME\tREQUESTS\tERRORS\tRUNNING\tADDRESS")
		for _, h := range hosts {
			uptime := max(0, time.Since(h.Started)).Round(time.Second)
			fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", h.Host, h.Version, uptime, h.Requests, h.Errors, h.Running, h.Address)
		}
	})
}
