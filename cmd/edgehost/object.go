package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// objectCommand is `edgehost object`.
type objectCommand struct {
	List  objectListCommand  `cmd:"" help:"List the objects with their owners, breakers and leases."`
	Get   objectGetCommand   `cmd:"" help:"Show one object."`
	Watch objectWatchCommand `cmd:"" help:"Print objects when they change."`
	Trip  objectTripCommand  `cmd:"" help:"Open the breaker of a dependency for some time."`
	Reset objectResetCommand `cmd:"" help:"Close the breaker of a dependency."`
}

// natsFlags say where the store is.
type natsFlags struct {
	NATS    string `name:"nats" placeholder:"URL" help:"Address of the store; also NATS_URL (default: nats://127.0.0.1:4222)."`
	Creds   string `type:"path" placeholder:"FILE" help:"Credentials for NATS."`
	Context string `placeholder:"NAME" help:"Context of the nats tool, which says how to reach the store; other flags override it."`
}

// url returns the address of the flag, of NATS_URL, or "".
func (f *natsFlags) url(t *terminal) string {
	if f.NATS != "" {
		return f.NATS
	}
	url, _ := t.env("NATS_URL")
	return url
}

// objectListCommand is `edgehost object list`.
type objectListCommand struct {
	natsFlags `embed:""`
	Namespace string `placeholder:"NAME" help:"Only objects of this namespace, which is an app's name (default: all)."`
}

// Run executes the command.
func (c *objectListCommand) Run(ctx context.Context, t *terminal) error {
	all, err := readObjects(ctx, t, &c.natsFlags, c.Namespace)
	if all == nil {
		return err
	}
	printErr := t.print(all, func(out *tabwriter.Writer) {
		fmt.Fprintln(out, "OBJECT\tBREAKER\tFAILURES\tRETRY AFTER\tLEASES\tOWNER")
		for _, o := range all {
			printObjectRow(out, o)
		}
	})
	return errors.Join(err, printErr)
}

func printObjectRow(out io.Writer, o objects.Snapshot) {
	state, failures, retry := "-", "-", "-"
	if o.Breaker != nil {
		state, failures = string(o.Breaker.State), fmt.Sprint(o.Breaker.Failures)
		if o.Breaker.State != objects.StateClosed {
			retry = o.Breaker.RetryAfter.Round(time.Millisecond).String()
		}
	}
	fmt.Fprintf(out, "%s/%s\t%s\t%s\t%s\t%d\t%s\n", o.Namespace, o.Name, state, failures, retry, len(o.Leases), o.Owner)
}

// objectGetCommand is `edgehost object get`.
type objectGetCommand struct {
	natsFlags `embed:""`
	Name      string `arg:"" help:"NAMESPACE/NAME, or NAME alone if only one namespace has it."`
}

// Run executes the command.
func (c *objectGetCommand) Run(ctx context.Context, t *terminal) error {
	all, err := readObjects(ctx, t, &c.natsFlags, "")
	var found []objects.Snapshot
	for _, o := range all {
		if c.Name == o.Name || c.Name == o.Namespace+"/"+o.Name {
			found = append(found, o)
		}
	}
	switch {
	case len(found) == 0 && err != nil:
		return err
	case len(found) == 0:
		return fmt.Errorf("there is no object %s; \"edgehost object list\" shows those there are", c.Name)
	case len(found) > 1:
		return fmt.Errorf("%d namespaces have an object %s: write NAMESPACE/NAME, such as %s/%s", len(found), c.Name, found[0].Namespace, found[0].Name)
	}
	return t.print(found[0], func(out *tabwriter.Writer) { printObject(out, found[0]) })
}

func printObject(out io.Writer, o objects.Snapshot) {
	fmt.Fprintf(out, "object\t%s/%s\nowner\t%s\nepoch\t%d\n", o.Namespace, o.Name, o.Owner, o.Epoch)
	if b := o.Breaker; b != nil {
		fmt.Fprintf(out, "breaker\t%s\ngeneration\t%d\nfailures in a row\t%d\n", b.State, b.Generation, b.Failures)
		if b.State != objects.StateClosed {
			fmt.Fprintf(out, "retry after\t%s\n", b.RetryAfter.Round(time.Millisecond))
		}
		if b.ProbeHolder != "" {
			fmt.Fprintf(out, "probe\t%s, fence %d\n", b.ProbeHolder, b.ProbeFence)
		}
	}
	for _, l := range o.Leases {
		fmt.Fprintf(out, "lease %s\t%s, fence %d, ttl %s, age %s\n", l.Name, l.Holder, l.Fence, l.TTL, l.Age.Round(time.Millisecond))
	}
}

// readObjects connects to the store, lists its objects and disconnects.
func readObjects(ctx context.Context, t *terminal, flags *natsFlags, namespace string) ([]objects.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, url, err := flags.dial(ctx, t, "object")
	if err != nil {
		return nil, err
	}
	bucket, err := conn.Bucket(ctx, kvbucket.BucketConfig{Name: bucketName})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store at %s: %w", url, err), conn.Close(ctx))
	}
	all, err := objects.List(ctx, bucket, namespace)
	if all == nil {
		all = []objects.Snapshot{} // [] in JSON
	}
	return all, errors.Join(err, conn.Close(ctx))
}
