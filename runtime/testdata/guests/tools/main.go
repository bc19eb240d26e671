// Command tools is a function that does what its path says.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() { edge.Handle(serve) }

func main() {}

var handlers = map[string]edge.Handler{
	"panic":    func(*edge.ResponseWriter, *edge.Request) { panic("the secret of the guest") },
	"exit":     func(*edge.ResponseWriter, *edge.Request) { os.Exit(0) },
	"sleep":    sleep,
	"nap":      func(*edge.ResponseWriter, *edge.Request) { time.Sleep(50 * time.Millisecond) },
	"echo":     echo,
	"upload":   upload,
	"download": download,
	"head":     head,
	"cookies":  cookies,
	"trailers": trailers,
	"hints":    hints,
	"length":   length,
	"status":   status,
	"print":    printLines,
	"random":   random,
	"gone":     gone,
	"config":   config,
	"fail":     fail,
	"late":     late,
	"fetch":    fetch,
	"lease":    lease,
	"state":    state,
	"admit":    admit,
	"loop":     loop,
	"storm":    storm,
	"recurse":  func(w *edge.ResponseWriter, _ *edge.Request) { fmt.Fprint(w, recurse(1)) },
	"fuel":     fuel,
}

func serve(w *edge.ResponseWriter, r *edge.Request) { handlers[r.PathValue("what")](w, r) }

func query(r *edge.Request, name string) string { return r.URL().Query().Get(name) }

func number(r *edge.Request, name string) int {
	n, _ := strconv.Atoi(query(r, name))
	return n
}

func sleep(*edge.ResponseWriter, *edge.Request) {
	edge.Log.Info("sleeping")
	time.Sleep(time.Hour)
}

// echo sends back what it reads, as it comes.
func echo(w *edge.ResponseWriter, r *edge.Request) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(buffer)
		if _, failed := w.Write(buffer[:n]); failed != nil {
			return
		}
		if query(r, "flush") != "" {
			_ = w.Flush()
		}
		if err != nil {
			return
		}
	}
}

func upload(w *edge.ResponseWriter, r *edge.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		edge.Error(w, err)
		return
	}
	fmt.Fprint(w, n)
}

func download(w *edge.ResponseWriter, r *edge.Request) {
	chunk := make([]byte, 64<<10)
	for left := number(r, "n"); left > 0; left -= len(chunk) {
		if _, err := w.Write(chunk[:min(left, len(chunk))]); err != nil {
			edge.Log.Info("download ended", "error", err.Error())
			return
		}
	}
}

func head(w *edge.ResponseWriter, r *edge.Request) {
	header := make(map[string][]string)
	for name, value := range r.Header().All() {
		header[name] = append(header[name], value)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "target": r.Target(), "host": r.Host(), "scheme": r.Scheme(),
		"route": r.Route(), "id": r.RequestID(), "what": r.PathValue("what"), "header": header,
		"length": r.ContentLength(),
	})
}

func cookies(w *edge.ResponseWriter, r *edge.Request) {
	w.Header().Add("Set-Cookie", "a=1; Path=/")
	w.Header().Add("Set-Cookie", "b=2; Path=/")
	w.Header().Set("Connection", "x-hop")
	w.Header().Set("X-Hop", "dropped")
	w.Header().Set("Transfer-Encoding", "gzip")
	w.Header().Set("X-Request-Id", "mine")
	for _, value := range r.Header().Values("X-Many") {
		w.Header().Add("X-Seen", value)
	}
}

func trailers(w *edge.ResponseWriter, r *edge.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	sent, err := r.Trailer()
	if err != nil {
		edge.Error(w, err)
		return
	}
	fmt.Fprint(w, "body")
	w.Trailer().Set("X-Sum", sent.Get("X-Sum"))
}

func hints(w *edge.ResponseWriter, _ *edge.Request) {
	w.Header().Set("Link", "</style.css>; rel=preload")
	w.WriteHeader(103)
	w.Header().Del("Link")
	fmt.Fprint(w, "done")
}

func length(w *edge.ResponseWriter, r *edge.Request) {
	w.Header().Set("Content-Length", query(r, "says"))
	fmt.Fprint(w, query(r, "body"))
	if query(r, "flush") != "" {
		_ = w.Flush()
	}
}

func status(w *edge.ResponseWriter, r *edge.Request) { w.WriteHeader(number(r, "code")) }

func printLines(w *edge.ResponseWriter, r *edge.Request) {
	for range number(r, "n") {
		fmt.Println("printed line")
	}
	fmt.Fprint(os.Stderr, "without an end")
}

func random(w *edge.ResponseWriter, _ *edge.Request) {
	fmt.Fprint(w, rand.Text(), mathrand.Uint64())
}

// gone streams until the client has gone away, and says so in the log.
func gone(w *edge.ResponseWriter, _ *edge.Request) {
	_ = w.Flush()
	for !edge.CurrentStatus().Canceled {
		time.Sleep(time.Millisecond)
	}
	_, err := w.WriteString("anybody?")
	if err == nil {
		err = w.Flush()
	}
	edge.Log.Info("client has gone", "canceled", errors.Is(err, edge.Canceled))
}

func config(w *edge.ResponseWriter, _ *edge.Request) {
	fmt.Fprint(w, edge.Env("GREETING"), edge.Secret("KEY"), edge.Env("KEY"), os.Getenv("GREETING"))
}

func fail(w *edge.ResponseWriter, r *edge.Request) {
	fmt.Fprint(w, "part of an answer")
	edge.Error(w, fmt.Errorf("the secret of the guest: %w", edge.Code(number(r, "code"))))
}

// late works past the deadline and tries to answer all the same.
func late(w *edge.ResponseWriter, _ *edge.Request) {
	for !edge.CurrentStatus().Answered {
		time.Sleep(time.Millisecond)
	}
	_, err := fmt.Fprint(w, "too late")
	if err == nil {
		err = w.Flush()
	}
	edge.Log.Info("guest was late", "error", fmt.Sprint(err))
}

// fetch calls the dependency, or the URL, of the query.
func fetch(w *edge.ResponseWriter, r *edge.Request) {
	var body io.Reader
	if r.Method == "POST" {
		body = r.Body
	}
	if query(r, "inline") != "" {
		b, _ := io.ReadAll(r.Body)
		body = bytes.NewReader(b)
	}
	req, err := edge.NewRequest(r.Method, query(r, "target"), body)
	if err != nil {
		edge.Error(w, err)
		return
	}
	for name, value := range r.Header().All() {
		if name == "X-Many" || name == "Payment-Key" {
			req.Header().Add(name, value)
		}
	}
	if object := query(r, "lease"); object != "" {
		if req.Lease, err = edge.Object(object).Acquire(edge.LeaseOptions{}); err != nil {
			edge.Error(w, err)
			return
		}
	}
	var resp *edge.Response
	if d := query(r, "dependency"); d != "" {
		resp, err = edge.Dependency(d).Fetch(req)
	} else {
		resp, err = edge.Fetch(req)
	}
	if err != nil {
		edge.Error(w, err)
		return
	}
	for name, value := range resp.Header().All() {
		w.Header().Add(name, value)
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(resp.Status)
	if _, err := io.Copy(w, resp.Body); err != nil {
		edge.Log.Error("copy the answer", "error", err.Error())
	}
}

// lease holds a lease for the milliseconds of the query, and leaves its release
// to the host.
func lease(w *edge.ResponseWriter, r *edge.Request) {
	wait := time.Duration(number(r, "wait")) * time.Millisecond
	l, err := edge.Object(query(r, "object")).Acquire(edge.LeaseOptions{Wait: wait})
	if err != nil {
		edge.Error(w, err)
		return
	}
	edge.Log.Info("holding the lease")
	time.Sleep(time.Duration(number(r, "ms")) * time.Millisecond)
	fmt.Fprint(w, l.Fence(), " ", l.Remaining() > 0, " ", l.Err())
	if query(r, "release") != "" {
		fmt.Fprint(w, " ", l.Release())
	}
}

// state counts in a key, with a lease if the query has one.
func state(w *edge.ResponseWriter, r *edge.Request) {
	object := edge.Object(query(r, "object"))
	var l *edge.Lease
	if query(r, "lease") != "" {
		var err error
		if l, err = object.Acquire(edge.LeaseOptions{Wait: time.Second}); err != nil {
			edge.Error(w, err)
			return
		}
	}
	value, revision, err := object.Get("count", l)
	if err != nil && !errors.Is(err, edge.NotFound) {
		edge.Error(w, err)
		return
	}
	n, _ := strconv.Atoi(string(value))
	if _, err := object.Put("count", []byte(strconv.Itoa(n+1)), revision, l); err != nil {
		edge.Error(w, err)
		return
	}
	if _, err := object.Put("count", nil, revision, l); !errors.Is(err, edge.Conflict) {
		fmt.Fprint(w, "an old revision gave ", err, " ")
	}
	fmt.Fprint(w, n+1)
}

// admit makes calls by hand.
func admit(w *edge.ResponseWriter, r *edge.Request) {
	d := edge.Dependency(query(r, "dependency"))
	for range number(r, "n") {
		a, err := d.Admit()
		if err == nil {
			err = a.Report(edge.Success)
		}
		if err != nil {
			edge.Error(w, err)
			return
		}
	}
}

// loop computes for ever.
func loop(w *edge.ResponseWriter, _ *edge.Request) {
	n := uint32(1)
	for n != 0 {
		n = n*1664525 + 1013904223 | 1
	}
	fmt.Fprint(w, n)
}

// storm allocates for ever, and lets the collector have it.
func storm(*edge.ResponseWriter, *edge.Request) {
	kept := make(map[int][]byte)
	for i := 0; ; i++ {
		kept[i%1000] = make([]byte, 1000+i%1000)
	}
}

func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

// fuel says what is left of it, and after some work.
func fuel(w *edge.ResponseWriter, _ *edge.Request) {
	before := edge.CurrentStatus().Fuel
	n := uint32(1)
	for range 1_000_000 {
		n = n*1664525 + 1013904223
	}
	fmt.Fprint(w, before, " ", edge.CurrentStatus().Fuel, " ", n&1)
}
