package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
)

// An app is a directory with a manifest.
type app struct {
	dir      string
	file     string // the manifest, as it is shown in messages
	manifest *manifest.Manifest
}

// readApp reads the manifest of a directory. The error is a [manifest.Problems]
// if the file could be read.
func readApp(dir string, t *terminal) (*app, error) {
	file := filepath.Join(dir, manifest.FileName)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, explainMissing(dir, err)
	}
	m, err := manifest.Parse(file, text, t.env)
	if err != nil {
		return nil, err
	}
	return &app{dir: dir, file: file, manifest: m}, nil
}

// explainMissing says what a manifest that cannot be read means.
func explainMissing(dir string, err error) error {
	info, statErr := os.Stat(dir)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s", dir)
	case statErr == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory: name the one that holds %s", dir, manifest.FileName)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s in %s: name the directory of an app, such as \"edgehost dev examples/payments\"", manifest.FileName, dir)
	default:
		return fmt.Errorf("reading the manifest: %w", err)
	}
}

// path returns where a file of the app is.
func (a *app) path(name manifest.Text) string {
	return filepath.Join(a.dir, filepath.FromSlash(name.Value))
}

// problem reports something about a place in the manifest.
func (a *app) problem(at manifest.Position, hint, format string, args ...any) manifest.Problem {
	return manifest.Problem{File: a.file, Position: at, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// modules reads the modules of all functions, by the function's name. The hint
// is for those that are missing.
func (a *app) modules(hint string) (map[string][]byte, error) {
	modules := map[string][]byte{}
	var problems manifest.Problems
	for _, f := range a.manifest.Functions {
		module, err := os.ReadFile(a.path(f.Module))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, a.problem(f.Module.At, hint, "there is no module %s", a.path(f.Module)))
		case err != nil:
			problems = append(problems, a.problem(f.Module.At, "", "the module cannot be read: %v", err))
		}
		modules[f.Name.Value] = module
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return modules, nil
}

// secrets reads the secrets that the app's functions name. Those that are
// missing are problems.
func (a *app) secrets(t *terminal) (map[string]string, manifest.Problems) {
	values := map[string]string{}
	var missing manifest.Problems
	for _, f := range a.manifest.Functions {
		for _, name := range f.Secrets {
			value, ok := t.env(name.Value)
			if !ok {
				missing = append(missing, a.problem(name.At, "set it before starting edgehost",
					"the secret %s is not in the environment", name))
			}
			values[name.Value] = value
		}
	}
	return values, missing
}

// build runs the build command of every function, once where several share it.
func (a *app) build(ctx context.Context, t *terminal) error {
	done := map[string]bool{}
	for _, f := range a.manifest.Functions {
		line := f.Build.Value
		if line == "" || done[line] {
			continue
		}
		done[line] = true
		environ := append(append([]string{}, t.environ...), "GOOS=wasip1", "GOARCH=wasm")
		err := runCommand(ctx, line, a.dir, environ, t.stderr)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return a.problem(f.Build.At, buildHint(line, err), "building the function %s failed: %v", f.Name, err)
		}
	}
	return nil
}

// notFound is the status with which a shell says that it knows no such program.
const notFound = 127

func buildHint(line string, err error) string {
	program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case exitCode(err) != notFound:
		return "the command was: " + line
	case program == "go":
		return "the program go is not in PATH: install Go from https://go.dev/dl/"
	default:
		return "the program " + program + " is not in PATH"
	}
}
