// Command edge is the guest of SDK.md, written with the Go SDK.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() {
	handlers := map[string]func(*edge.ResponseWriter, *edge.Request) error{
		"hello": hello, "head": head, "echo": echo, "trailers": trailers, "config": config, "cookies": cookies,
		"stream": stream, "refuse": refuse, "fail": fail, "fetch": fetch, "parallel": parallel, "breaker": breaker,
		"lease": lease, "state": state, "conflict": conflict,
	}
	edge.Handle(func(w *edge.ResponseWriter, r *edge.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL().EscapedPath(), "/"), "/")
		if err := handlers[name](w, r); err != nil {
			edge.Error(w, err)
		}
	})
}

func main() {}

func hello(w *edge.ResponseWriter, _ *edge.Request) error {
	w.Header().Set("Content-Type", "text/plain")
	_, err := w.WriteString("hello, world\n")
	return err
}

func head(w *edge.ResponseWriter, r *edge.Request) error {
	lines := append([]string{r.Method, r.Target(), r.PathValue("id"), r.Host()}, r.Header().Values("X-In")...)
	_, err := w.WriteString(strings.Join(lines, "\n") + "\n")
	return err
}

func echo(w *edge.ResponseWriter, r *edge.Request) error {
	w.Header().Set("X-Length", strconv.FormatInt(r.ContentLength(), 10))
	_, err := io.Copy(w, r.Body)
	return err
}

func trailers(w *edge.ResponseWriter, r *edge.Request) error {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	sent, err := r.Trailer()
	if err != nil {
		return err
	}
	w.Trailer().Set("X-Out", "done")
	_, err = w.WriteString(sent.Get("X-In"))
	return err
}

func config(w *edge.ResponseWriter, _ *edge.Request) error {
	_, err := w.WriteString(edge.Env("GREETING") + " " + edge.Secret("KEY"))
	return err
}

func cookies(w *edge.ResponseWriter, _ *edge.Request) error {
	w.Header().Add("Set-Cookie", "a=1")
	w.Header().Add("Set-Cookie", "b=2")
	w.WriteHeader(201)
	return nil
}

func stream(w *edge.ResponseWriter, r *edge.Request) error {
	if _, err := w.WriteString("first "); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.Copy(w, r.Body)
	return err
}

func refuse(w *edge.ResponseWriter, _ *edge.Request) error {
	w.Header().Set("X-Guest", "1")
	req, err := edge.NewRequest("GET", "/", nil)
	if err != nil {
		return err
	}
	_, err = edge.Dependency("nothing").Fetch(req)
	return err
}

func fail(w *edge.ResponseWriter, _ *edge.Request) error {
	w.Header().Set("X-Guest", "1")
	panic("as it was told")
}

func fetch(w *edge.ResponseWriter, r *edge.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	req, err := edge.NewRequest("POST", "/echo?q=1", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header().Add("X-Sent", "1")
	req.Header().Add("X-Sent", "2")
	resp, err := edge.Dependency("up").Fetch(req)
	if err != nil {
		return err
	}
	for _, name := range []string{"X-Seen", "X-Seen-Values", "Set-Cookie"} {
		for _, value := range resp.Header().Values(name) {
			w.Header().Add(name, value)
		}
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

func parallel(w *edge.ResponseWriter, _ *edge.Request) error {
	var requests []*edge.Request
	for _, query := range []string{"a", "b"} {
		req, err := edge.NewRequest("GET", "/echo?"+query, nil)
		if err != nil {
			return err
		}
		requests = append(requests, req)
	}
	responses, err := edge.Dependency("up").Start(requests...).Wait()
	if err != nil {
		return err
	}
	for _, resp := range responses {
		if _, err := w.WriteString(resp.Header().Get("X-Seen") + "\n"); err != nil {
			return err
		}
	}
	return nil
}

func breaker(*edge.ResponseWriter, *edge.Request) error {
	admission, err := edge.Dependency("trips").Admit()
	if err != nil {
		return err
	}
	if err := admission.Report(edge.Failure); err != nil {
		return err
	}
	_, err = edge.Dependency("trips").Admit()
	return err
}

func lease(w *edge.ResponseWriter, _ *edge.Request) error {
	held, err := edge.Object("doc/sdk").Acquire(edge.LeaseOptions{})
	if err != nil {
		return err
	}
	_, refused := edge.Object("doc/sdk").Acquire(edge.LeaseOptions{})
	code, _ := errors.AsType[edge.Code](refused)
	if _, err := w.WriteString(code.String() + "\n"); err != nil {
		return err
	}
	return held.Release()
}

func state(w *edge.ResponseWriter, _ *edge.Request) error {
	value, revision, err := edge.Object("doc/sdk").Get("count", nil)
	if errors.Is(err, edge.NotFound) {
		value = []byte("0")
	} else if err != nil {
		return err
	}
	count, err := strconv.Atoi(string(value))
	if err != nil {
		return err
	}
	if _, err := edge.Object("doc/sdk").Put("count", strconv.AppendInt(nil, int64(count+1), 10), revision, nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d then %d\n", count, count+1)
	return err
}

func conflict(*edge.ResponseWriter, *edge.Request) error {
	_, err := edge.Object("doc/sdk").Put("count", []byte("0"), 0, nil)
	return err
}
