//go:build !wasip1

package edge_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

func TestLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 3, 0, 0, 5, time.UTC)
	tests := []struct {
		name string
		log  func()
		want string
	}{
		{"a message alone", func() { edge.Log.Info("a message") }, "INFO a message"},
		{"attributes", func() { edge.Log.Warn("m", "n", 1, "ok", true, "d", time.Second, "at", at) }, "WARN m n=1 ok=true d=1s at=2026-12-01T03:00:00.000000005Z"},
		{"what needs quotes", func() { edge.Log.Error("m", "a b", "c\nd", "e", "", "q", `"`, "u", "ü") }, `ERROR m "a b"="c\nd" e="" q="\"" u=ü`},
		{"an error", func() { edge.Log.Debug("m", "error", errors.New("no way")) }, `DEBUG m error="no way"`},
		{"groups", func() { edge.Log.WithGroup("g").With("a", 1).WithGroup("").Info("m", slog.Group("h", "b", 2)) }, "INFO m g.a=1 g.h.b=2"},
		{"an inline group", func() { edge.Log.Info("m", slog.Group("", "b", 2)) }, "INFO m b=2"},
		{"an empty attribute", func() { edge.Log.Info("m", slog.Attr{}) }, "INFO m"},
		{"a value that resolves", func() { edge.Log.Info("m", "v", token("secret")) }, "INFO m v=***"},
		{"a level in between", func() { edge.Log.Log(context.Background(), slog.LevelWarn+1, "m") }, "WARN+1 m"},
		{"a line too long is cut", func() { edge.Log.Info(strings.Repeat("x", 20<<10)) }, "INFO " + strings.Repeat("x", 16<<10)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := edgetest.New(t)
			host.Run(test.log)
			logs := host.Logs()
			if len(logs) != 1 {
				t.Fatalf("%d lines", len(logs))
			}
			if diff := cmp.Diff(test.want, logs[0].Level.String()+" "+logs[0].Line); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

type token string

func (token) LogValue() slog.Value { return slog.StringValue("***") }

func TestConfig(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	long := strings.Repeat("x", 5000)
	host.SetEnv("GREETING", "hi")
	host.SetEnv("LONG", long)
	host.SetSecret("KEY", "s3cret")
	host.Run(func() {
		got := []string{edge.Env("GREETING"), edge.Env("KEY"), edge.Env(""), edge.Secret("KEY"), edge.Secret("GREETING")}
		if diff := cmp.Diff([]string{"hi", "", "", "s3cret", ""}, got); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
		if edge.Env("LONG") != long {
			t.Error("a long value is cut")
		}
	})
	if logs := host.Logs(); len(logs) != 1 || !strings.Contains(logs[0].Line, "GREETING") || logs[0].Level != slog.LevelError {
		t.Errorf("a missing secret is not logged once: %v", logs)
	}
}

// TestWithoutHost runs before the parallel tests, which have hosts.
func TestWithoutHost(t *testing.T) {
	_, err := edge.Dependency("payments").Admit()
	if !errors.Is(err, edge.Unsupported) || err.Error() != "edge: admit payments: unsupported" {
		t.Errorf("got %v", err)
	}
	if edge.Env("X") != "" || edge.CurrentStatus() != (edge.Status{}) {
		t.Error("values from nowhere")
	}
	edge.Log.Info("to nobody")
}
