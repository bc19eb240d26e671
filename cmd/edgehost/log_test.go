package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestDurationsAreLoggedWithTheirUnit(t *testing.T) {
	for format, want := range map[string]string{"json": `"took":"12ms"`, "text": "took=12ms"} {
		var out bytes.Buffer
		(&logFlags{LogFormat: format}).logger(&out).Info("done", "took", 12*time.Millisecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("as %s, 12 ms are logged as %s", format, out.String())
		}
	}
}
