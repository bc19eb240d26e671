package edgehttp

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/edgehost/edgehost/guests/edge"
)

// sniffLength is how much of a body [http.DetectContentType] looks at.
const sniffLength = 512

// A responseWriter gives an edge.ResponseWriter the manners of net/http.
type responseWriter struct {
	to       *edge.ResponseWriter
	header   http.Header
	status   int // the final one, zero before there is one
	failed   bool
	length   int64 // what Content-Length says, -1 without one
	written  int64
	sniffing bool     // the Content-Type depends on how the body begins
	start    []byte   // how it begins, up to sniffLength, while sniffing
	trailers []string // the names announced by the header Trailer
}

func newResponseWriter(to *edge.ResponseWriter) *responseWriter {
	return &responseWriter{to: to, header: header(to.Header()), length: -1}
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The fields are those of now,
// whatever becomes of the map later.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("edgehttp: invalid WriteHeader code %d", status))
	case w.status != 0 || w.failed: // which is logged
	case status < 200:
		w.snapshot()
	default:
		w.status = status
		w.length = w.contentLength()
		w.announce()
		w.snapshot()
		_, typed := w.header["Content-Type"]
		w.sniffing = !typed && !bodiless(status) && w.header.Get("Content-Encoding") == ""
	}
	w.to.WriteHeader(status)
}

// contentLength reads the Content-Length, or drops one that is no length.
func (w *responseWriter) contentLength() int64 {
	values := w.header["Content-Length"]
	if len(values) == 0 || values[0] == "" {
		return -1
	}
	n, err := strconv.ParseInt(textproto.TrimString(values[0]), 10, 64)
	if err != nil || n < 0 {
		edge.Log.Warn("edgehttp: invalid Content-Length", "value", values[0])
		delete(w.header, "Content-Length")
		return -1
	}
	return n
}

// announce notes the names that the header Trailer lists.
func (w *responseWriter) announce() {
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			w.trailers = append(w.trailers, http.CanonicalHeaderKey(textproto.TrimString(name)))
		}
	}
}

// snapshot makes the map's fields those of the head.
func (w *responseWriter) snapshot() {
	to := w.to.Header()
	if to.Len() > 0 {
		*to = edge.Header{}
	}
	for name, values := range w.header {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			add(to, name, values)
		}
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) { return write(w, p, w.to.Write) }

// WriteString implements io.StringWriter.
func (w *responseWriter) WriteString(s string) (int, error) { return write(w, s, w.to.WriteString) }

// write gives p to the response by means of send.
func write[T string | []byte](w *responseWriter, p T, send func(T) (int, error)) (int, error) {
	w.begin()
	switch {
	case len(p) == 0:
		return 0, nil
	case bodiless(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.sniffing {
		return send(p)
	}
	fits := len(w.start)+len(p) < sniffLength
	before := len(w.start)
	w.start = append(w.start, p[:min(len(p), sniffLength-before)]...)
	if fits {
		return len(p), nil
	}
	taken := len(w.start) - before
	if err := w.sniff(); err != nil {
		return 0, err
	}
	n, err := send(p[taken:])
	return taken + n, err
}

// begin makes 200 the status of a response that has none.
func (w *responseWriter) begin() {
	if w.status == 0 && !w.failed {
		w.WriteHeader(http.StatusOK)
	}
}

// sniff sets the Content-Type by what there is of the body, and sends that.
func (w *responseWriter) sniff() error {
	if !w.sniffing {
		return nil
	}
	w.sniffing = false
	if len(w.start) == 0 {
		return nil
	}
	w.to.Header().Set("Content-Type", http.DetectContentType(w.start))
	_, err := w.to.Write(w.start)
	w.start = nil
	return err
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is what an http.ResponseController flushes by.
func (w *responseWriter) FlushError() error {
	w.begin()
	if err := w.sniff(); err != nil {
		return err
	}
	return w.to.Flush()
}

// EnableFullDuplex is for http.ResponseController: it is always enabled.
func (w *responseWriter) EnableFullDuplex() error { return nil }

// finish completes the response after the handler has returned. Errors are left to
// the edge.ResponseWriter, which keeps them.
func (w *responseWriter) finish() {
	w.begin()
	_ = w.sniff()
	for _, name := range w.trailers {
		add(w.to.Trailer(), name, w.header[name])
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(w.to.Trailer(), name, values)
		}
	}
}

// fail leaves the answer to the host.
func (w *responseWriter) fail(err error) {
	w.failed, w.sniffing = true, false
	edge.Error(w.to, err)
}

// recoverAbort ends the panic with which a handler breaks its response off.
func (w *responseWriter) recoverAbort() {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		w.to.Abort()
	default:
		panic(v)
	}
}

// bodiless reports whether a response with the status has no body.
func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// add adds the values of a field. Like net/http it leaves out a name that HTTP does
// not allow, and puts spaces where a value would break the line.
func add(to *edge.Header, name string, values []string) {
	if !isToken(name) {
		return
	}
	for _, value := range values {
		to.Add(name, textproto.TrimString(oneLine(value)))
	}
}

// oneLine replaces control characters by spaces.
func oneLine(s string) string {
	for i := range len(s) {
		if isControl(rune(s[i])) {
			return strings.Map(func(r rune) rune {
				if isControl(r) {
					return ' '
				}
				return r
			}, s)
		}
	}
	return s
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("-_!#$%&'*+.^`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
