package main

import (
	"encoding/json"
	"fmt"
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
