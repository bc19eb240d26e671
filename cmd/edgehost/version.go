package main

import (
	"fmt"
	"runtime/debug"
	"text/tabwriter"
)

// versionCommand is `edgehost version`.
type versionCommand struct{}

// build is what the program knows about itself.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, with "+dirty" if it had been changed
	Go       string `json:"go"`
}

// Run executes the command.
func (versionCommand) Run(t *terminal) error {
	b := currentBuild()
	return t.print(b, func(out *tabwriter.Writer) {
		fmt.Fprintf(out, "edgehost %s", b.Version)
		if b.Revision != "" {
			fmt.Fprintf(out, " (%s)", b.Revision)
		}
		fmt.Fprintf(out, " %s\n", b.Go)
	})
}

func currentBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{Version: "unknown"}
	}
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	dirty := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			b.Revision = setting.Value[:min(12, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "+dirty"
		}
	}
	if b.Revision != "" {
		b.Revision += dirty
	}
	return b
}
