package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// overrideFlags are common to the commands by which an operator overrules a breaker.
type overrideFlags struct {
	natsFlags `embed:""`
	Name      string `arg:"" help:"NAMESPACE/NAME of the dependency's object."`
	Reason    string `required:"" help:"Why; it is kept in the record for others to see."`
}

// objectTripCommand is `edgehost object trip`.
type objectTripCommand struct {
	overrideFlags `embed:""`
	For           time.Duration `default:"5m" help:"How long the breaker stays open; then one probe may go out."`
}

// Run executes the command.
func (c *objectTripCommand) Run(ctx context.Context, t *terminal) error {
	return c.override(ctx, t, "open", func(ctx context.Context, h *objects.Host, id objects.ID) error {
		return h.Trip(ctx, id, c.Reason, c.For)
	})
}

// objectResetCommand is `edgehost object reset`.
type objectResetCommand struct {
	overrideFlags `embed:""`
	For           time.Duration `default:"0s" help:"How long failures do not open the breaker again."`
}

// Run executes the command.
func (c *objectResetCommand) Run(ctx context.Context, t *terminal) error {
	return c.override(ctx, t, "closed", func(ctx context.Context, h *objects.Host, id objects.ID) error {
		return h.Reset(ctx, id, c.Reason, c.For)
	})
}

// override gives an order about one object. For as long as that takes, the command
// is a host that owns what nobody else does.
func (f *overrideFlags) override(ctx context.Context, t *terminal, state string, order func(context.Context, *objects.Host, objects.ID) error) error {
	namespace, name, ok := strings.Cut(f.Name, "/")
	if !ok || namespace == "" || name == "" {
		return fmt.Errorf("%q is no NAMESPACE/NAME, such as shop/payments", f.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, url, err := f.dial(ctx, t, "object")
	if err != nil {
		return err
	}
	err = withHost(ctx, conn, func(h *objects.Host) error {
		return order(ctx, h, objects.ID{Namespace: namespace, Name: name})
	})
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("overruling %s at %s: %w", f.Name, url, err)
	}
	result := map[string]string{"object": f.Name, "state": state, "reason": f.Reason}
	return t.print(result, func(out *tabwriter.Writer) {
		fmt.Fprintf(out, "The breaker of %s is %s.\n", f.Name, state)
	})
}

// withHost opens a host of objects for as long as use runs.
func withHost(ctx context.Context, conn *kvbucket.Conn, use func(*objects.Host) error) error {
	bucket, err := conn.Bucket(ctx, kvbucket.BucketConfig{Name: bucketName})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	messenger, err := conn.Messenger(kvbucket.MessengerConfig{Host: hostName(), Version: currentBuild().Version})
	if err != nil {
		return fmt.Errorf("opening the line to the hosts: %w", err)
	}
	h, err := objects.Open(ctx, objects.Config{Bucket: bucket, Messenger: messenger, Host: hostName(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(use(h), h.Close(ctx))
}
