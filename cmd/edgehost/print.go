package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"text/tabwriter"
)

// print writes data: as JSON if that was asked for, else through text, which
// may align columns with tabs.
func (t *terminal) print(data any, text func(columns *tabwriter.Writer)) error {
	if !t.json {
		columns := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
		text(columns)
		if err := columns.Flush(); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	encoder := json.NewEncoder(t.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

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
