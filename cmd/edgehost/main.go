// Command edgehost runs HTTP functions compiled to WebAssembly beside the
// objects that guard what they call.
//
// This package is the only one with flags and files: it reads the manifest,
// opens the store, the objects and the engine in this order, and closes them in
// reverse.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on the default action is back: a second Ctrl-C ends
	// the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}

// arguments is the command line.
type arguments struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"How to print data: ${enum}."`

	Dev     devCommand     `cmd:"" help:"Build an app, serve it with a store of its own, and reload it when its sources change."`
	Build   buildCommand   `cmd:"" help:"Build the WebAssembly modules of an app."`
	Check   checkCommand   `cmd:"" help:"Say what is wrong with an app or a module, or print the resolved configuration."`
	Serve   serveCommand   `cmd:"" help:"Serve an app that has been built."`
	Init    initCommand    `cmd:"" help:"Set up the store of a NATS server or cluster."`
	Hosts   hostsCommand   `cmd:"" help:"List the hosts that share a store."`
	Object  objectCommand  `cmd:"" help:"Look at the objects in the store."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// A terminal is what a command may talk to.
type terminal struct {
	stdout, stderr io.Writer
	environ        []string
	json           bool // print data as JSON
}

// env looks a variable up in the environment that run was given.
func (t *terminal) env(name string) (string, bool) {
	for _, assignment := range t.environ {
		if value, ok := strings.CutPrefix(assignment, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// A usageError is a mistake in the command line.
type usageError struct{ error }

// errReported fails a command whose problems have been printed already.
var errReported = errors.New("reported")

// run executes one command line and returns its exit code. The end of ctx asks
// it to finish.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, environ []string) int {
	t := &terminal{stdout: stdout, stderr: stderr, environ: environ}
	err := t.dispatch(ctx, args)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "edgehost: %v\nRun \"edgehost --help\" for the commands and flags.\n", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, describe(err))
		return exitFailure
	}
}

// exited is thrown where kong would end the process, after printing help.
type exited struct{}

func (t *terminal) dispatch(ctx context.Context, args []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exited); !ok {
				panic(r)
			}
		}
	}()
	var cli arguments
	parser, err := kong.New(&cli,
		kong.Name("edgehost"),
		kong.Description("Runs HTTP functions compiled to WebAssembly, with one circuit breaker per dependency for all hosts.\n\nStart with \"edgehost dev examples/payments\"."),
		kong.Writers(t.stdout, t.stderr),
		kong.Exit(func(int) { panic(exited{}) }),
		kong.DefaultEnvars("EDGEHOST"),
		kong.Resolvers(kong.ResolverFunc(t.fromEnvironment)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("the definition of the command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"} // does not return here
		err = usageError{errors.New("a command is missing")}
	}
	command, parseErr := parser.Parse(args)
	if parseErr != nil {
		return usageError{parseErr}
	}
	t.json = cli.Output == "json"
	command.BindTo(ctx, (*context.Context)(nil))
	return command.Run(t)
}

// fromEnvironment finds the value of a flag that was not given in the
// environment of run, which need not be that of the process.
func (t *terminal) fromEnvironment(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if value, ok := t.env(name); ok {
			return value, nil
		}
	}
	return nil, nil //nolint:nilnil // kong's way to say that there is no value
}

// describe shows an error in lines: problems of a manifest the way compilers
// do, so that editors find the place, everything else after the program's name.
func describe(err error) string {
	var problems manifest.Problems
	var problem manifest.Problem
	if errors.As(err, &problems) || errors.As(err, &problem) {
		return err.Error()
	}
	return "edgehost: " + strings.Join(lines(err), "\nedgehost: ")
}
