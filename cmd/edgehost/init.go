package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/edgehost/edgehost/kvbucket"
)

// initCommand is `edgehost init`.
type initCommand struct {
	natsFlags `embed:""`
	Replicas  int `required:"" enum:"1,3,5" help:"On how many servers each record is kept: 3 in a cluster, 1 on a single server, whose loss is then the loss of all owners and fences."`
}

// Help is printed by `edgehost init --help`.
func (initCommand) Help() string {
	return "Sets up what hosts share on a NATS server or cluster, and tests that it refuses stale writes. What exists already is only tested: with another number of replicas it is an error."
}

// A setup is what init has found or made.
type setup struct {
	Store    string `json:"store"`
	Bucket   string `json:"bucket"`
	Replicas int    `json:"replicas"`
}

// Run executes the command.
func (c *initCommand) Run(ctx context.Context, t *terminal) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, url, err := c.dial(ctx, t, "init")
	if err != nil {
		return err
	}
	_, err = conn.Bucket(ctx, kvbucket.BucketConfig{Name: bucketName, Replicas: c.Replicas})
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("setting up the store at %s: %w", url, err)
	}
	s := setup{Store: url, Bucket: bucketName, Replicas: c.Replicas}
	return t.print(s, func(out *tabwriter.Writer) {
		fmt.Fprintf(out, "The bucket %s at %s is ready, with every record on %d server(s).\n", s.Bucket, s.Store, s.Replicas)
	})
}
