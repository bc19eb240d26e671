package edge

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// Log writes to the host's log, which adds the request id and the function's
// name. A record becomes one line: the message, then its attributes as
// key=value, quoted where a value needs it. The host cuts a line at 16 KiB and
// drops lines beyond the function's log volume.
var Log = slog.New(logHandler{})

// logHandler leaves filtering to the host.
type logHandler struct {
	attrs string // of WithAttrs, as they appear in the line
	group string // of WithGroup, with a dot at the end
}

// Enabled implements slog.Handler.
func (logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	line := make([]byte, 0, 256)
	line = append(line, r.Message...)
	line = append(line, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		line = appendAttr(line, h.group, a)
		return true
	})
	return check(host.Current().Log(int32(r.Level), line), "log")
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	line := []byte(h.attrs)
	for _, a := range attrs {
		line = appendAttr(line, h.group, a)
	}
	h.attrs = string(line)
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.group += name + "."
	}
	return h
}

func appendAttr(line []byte, group string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range value.Group() {
			line = appendAttr(line, group, member)
		}
		return line
	}
	if a.Equal(slog.Attr{}) {
		return line
	}
	line = append(line, ' ')
	line = appendText(line, group+a.Key)
	line = append(line, '=')
	if value.Kind() == slog.KindTime {
		return value.Time().AppendFormat(line, time.RFC3339Nano)
	}
	return appendText(line, value.String())
}

// appendText quotes what would not read back as one word.
func appendText(line []byte, s string) []byte {
	plain := func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f || !strconv.IsPrint(r) }
	if s == "" || strings.ContainsFunc(s, plain) {
		return strconv.AppendQuote(line, s)
	}
	return append(line, s...)
}
