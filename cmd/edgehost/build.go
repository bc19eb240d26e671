package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"text/tabwriter"
)

// buildCommand is `edgehost build`.
type buildCommand struct {
	Dir string `arg:"" optional:"" default:"." help:"Directory of the app (default: ${default})."`
}

// Help is printed by `edgehost build --help`.
func (buildCommand) Help() string {
	return "Runs the build command of each function in the directory of the app, with GOOS=wasip1 and GOARCH=wasm set. A function without a build command is left alone."
}

// Run executes the command.
func (c *buildCommand) Run(ctx context.Context, t *terminal) error {
	a, err := readApp(c.Dir, t)
	if err != nil {
		return err
	}
	if err := a.build(ctx, t); err != nil {
		return err
	}
	if _, err := a.modules("its build command does not make it"); err != nil {
		return err
	}
	return t.print(c.result(a), func(out *tabwriter.Writer) {
		for _, f := range a.manifest.Functions {
			fmt.Fprintf(out, "%s\t%s\n", f.Name, a.path(f.Module))
		}
	})
}

// builtModule is a line of the output of `edgehost build`.
type builtModule struct {
	Function string `json:"function"`
	Module   string `json:"module"`
}

func (*buildCommand) result(a *app) []builtModule {
	built := []builtModule{}
	for _, f := range a.manifest.Functions {
		built = append(built, builtModule{f.Name.Value, a.path(f.Module)})
	}
	return built
}

// exitCode returns the status with which a command ended, or -1.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
