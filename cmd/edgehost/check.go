package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
	"github.com/edgehost/edgehost/runtime"
)

// checkCommand is `edgehost check`.
type checkCommand struct {
	Path directory `arg:"" optional:"" default:"." help:"Directory of an app, or a WebAssembly module (default: ${default})."`
}

// Help is printed by `edgehost check --help`.
func (checkCommand) Help() string {
	return "Reads the manifest and the modules, and prints one line for each problem, with its place. Without problems it prints the resolved configuration: every key with its default filled in and variables expanded. Secrets that are not in the environment are warnings."
}

// A report is what `edgehost check` found out.
type report struct {
	OK       bool               `json:"ok"`
	Problems []string           `json:"problems"`
	Warnings []string           `json:"warnings"`
	Manifest *manifest.Manifest `json:"manifest,omitempty"`
}

// Run executes the command.
func (c *checkCommand) Run(ctx context.Context, t *terminal) error {
	r := report{Problems: []string{}, Warnings: []string{}}
	file := string(c.Path)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
		r.module(ctx, file)
	} else {
		r.app(ctx, t, file)
	}
	r.OK = len(r.Problems) == 0
	for _, line := range append(slices.Clone(r.Problems), r.Warnings...) {
		if !t.json {
			fmt.Fprintln(t.stderr, line)
		}
	}
	if err := c.print(t, r); err != nil {
		return err
	}
	if !r.OK {
		return errReported
	}
	return nil
}

// print shows the resolved configuration in the language of the manifest.
func (c *checkCommand) print(t *terminal, r report) error {
	resolved := string(c.Path) + ": ok\n"
	if r.Manifest != nil {
		text, err := r.Manifest.TOML()
		if err != nil {
			return err
		}
		resolved = string(text)
	}
	return t.print(r, func(out *tabwriter.Writer) {
		if r.OK {
			fmt.Fprint(out, resolved)
		}
	})
}

// module checks a single file.
func (r *report) module(ctx context.Context, file string) {
	module, err := os.ReadFile(file)
	if err != nil {
		r.Problems = append(r.Problems, describe(err))
		return
	}
	one := runtime.App{Name: "check", Functions: []runtime.FunctionConfig{{Name: "check", Module: module, Routes: []string{"/"}}}}
	for _, line := range lines(runtime.Check(ctx, one)) {
		r.Problems = append(r.Problems, file+": "+strings.TrimPrefix(line, `function "check": `))
	}
}

// app checks a directory. The modules are checked as far as the manifest can be
// understood.
func (r *report) app(ctx context.Context, t *terminal, dir string) {
	a, err := readApp(dir, t)
	if err != nil {
		r.Problems = append(r.Problems, strings.Split(describe(err), "\n")...)
		return
	}
	r.Manifest = a.manifest
	secrets, missing := a.secrets(t)
	for _, p := range missing {
		r.Warnings = append(r.Warnings, "warning: "+p.Error())
	}
	modules, err := a.modules("run: edgehost build " + a.dir)
	if err != nil {
		r.Problems = append(r.Problems, strings.Split(describe(err), "\n")...)
	}
	resolved := a.resolve(modules, secrets)
	for i, f := range a.manifest.Functions {
		if modules[f.Name.Value] == nil {
			continue
		}
		one := runtime.App{Name: resolved.Name, Functions: resolved.Functions[i : i+1], Dependencies: resolved.Dependencies}
		for _, line := range lines(runtime.Check(ctx, one)) {
			r.Problems = append(r.Problems, a.problem(f.Module.At, "", "%s", line).Error())
		}
		for _, line := range runtime.Advise(one.Functions[0]) {
			r.Warnings = append(r.Warnings, "warning: "+a.problem(f.Isolation.At, "", "isolation: %s", line).Error())
		}
	}
}

// lines returns one line for each error that was joined, without the prefix of
// the package.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && err.Error() == errors.Join(joined.Unwrap()...).Error() { // not one that wraps several in a text of its own
		var all []string
		for _, one := range joined.Unwrap() {
			all = append(all, lines(one)...)
		}
		return all
	}
	return []string{oneLine(strings.TrimPrefix(err.Error(), "runtime: "))}
}

// oneLine puts a message of several lines, such as the engine's about a function
// body, in one.
func oneLine(message string) string {
	var parts []string
	for line := range strings.Lines(message) {
		if part := strings.TrimSpace(line); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}
