package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// watchInterval is how far apart two looks at the objects are at least.
const watchInterval = 100 * time.Millisecond

// objectWatchCommand is `edgehost object watch`.
type objectWatchCommand struct {
	natsFlags `embed:""`
	Namespace string `placeholder:"NAME" help:"Only objects of this namespace, which is an app's name (default: all)."`
}

// Help is printed by `edgehost object watch --help`.
func (objectWatchCommand) Help() string {
	return "Prints every object once, and again when its breaker, its leases or its owner change, until Ctrl-C. States that last less than 100 ms may be left out. As JSON, each line is one object."
}

// Run executes the command.
func (c *objectWatchCommand) Run(ctx context.Context, t *terminal) error {
	dialCtx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, url, err := c.dial(dialCtx, t, "object")
	if err != nil {
		return err
	}
	bucket, err := conn.Bucket(dialCtx, kvbucket.BucketConfig{Name: bucketName})
	if err != nil {
		return errors.Join(fmt.Errorf("opening the store at %s: %w", url, err), conn.Close(dialCtx))
	}
	err = c.watch(ctx, t, bucket)
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, conn.Close(closeCtx))
}

// watch looks at the objects whenever the bucket has changed.
func (c *objectWatchCommand) watch(ctx context.Context, t *terminal, bucket kvbucket.Bucket) error {
	ctx, cancel := context.WithCancel(ctx)
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for range bucket.Watch(ctx, ">") {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	shown := map[objects.ID]string{}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		all, err := objects.List(ctx, bucket, c.Namespace)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading the objects: %w", err)
		}
		for _, o := range all {
			if err := showChange(t, shown, o); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showChange prints an object unless it has been shown in the same state.
func showChange(t *terminal, shown map[objects.ID]string, o objects.Snapshot) error {
	id, line := objects.ID{Namespace: o.Namespace, Name: o.Name}, describeObject(o)
	if shown[id] == line {
		return nil
	}
	shown[id] = line
	if t.json {
		if err := json.NewEncoder(t.stdout).Encode(o); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	if _, err := fmt.Fprintln(t.stdout, time.Now().Format("15:04:05.000"), line); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// describeObject says in a line what does not change by itself.
func describeObject(o objects.Snapshot) string {
	line := o.Namespace + "/" + o.Name
	if b := o.Breaker; b != nil {
		line += fmt.Sprintf(" %s (generation %d, failures %d)", b.State, b.Generation, b.Failures)
	}
	for _, l := range o.Leases {
		line += fmt.Sprintf(", lease %s held by %s with fence %d", l.Name, l.Holder, l.Fence)
	}
	return line + fmt.Sprintf(", owner %s", o.Owner)
}
