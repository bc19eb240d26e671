package main

import (
	"io"
	"log/slog"
	"os"
)

// logFlags say how to log. They are part of the commands that run a host.
type logFlags struct {
	LogFormat string     `enum:"auto,text,json" default:"auto" help:"How to log to stderr: ${enum}; auto is text on a terminal and JSON elsewhere."`
	LogLevel  slog.Level `default:"info" help:"The least level that is logged: debug, info, warn or error."`
}

// logger returns a logger that writes to out.
func (f *logFlags) logger(out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel, ReplaceAttr: readable}
	if f.LogFormat == "text" || f.LogFormat == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// readable writes durations as Go does, such as "12ms": the JSON handler would
// print a number of nanoseconds without the unit.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
