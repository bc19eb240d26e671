package main

import (
	"context"
	"fmt"
	"text/tabwriter"
)

// buildCommand is `edgehost build`.
type buildCommand struct {
	Dir directory `arg:"" optional:"" default:"." help:"Directory of the app (default: ${default})."`
}

// Help is printed by `edgehost build --help`.
func (buildCommand) Help() string {
	return "Runs the build command of each function in the directory of the app, with GOOS=wasip1 and GOARCH=wasm set. A function without a build command is left alone."
}

// Run executes the command.
func (c *buildCommand) Run(ctx context.Context, t *terminal) error {
	a, err := readApp(string(c.Dir), t)
	if err != nil {
		return err
	}
	if err := a.build(ctx, t); err != nil {
		return err
	}
	if _, err := a.modules("its build command does not make it"); err != nil {
		return err
	}
	built := []builtModule{}
	for _, f := range a.manifest.Functions {
		built = append(built, builtModule{f.Name.Value, a.path(f.Module)})
	}
	return t.print(built, func(out *tabwriter.Writer) {
		for _, b := range built {
			fmt.Fprintf(out, "%s\t%s\n", b.Function, b.Module)
		}
	})
}

// builtModule is a line of the output of `edgehost build`.
type builtModule struct {
	Function string `json:"function"`
	Module   string `json:"module"`
}
