package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestAdminShowsWhatTheStoreHolds(t *testing.T) {
	upstreamAway := "http://" + freeAddress(t)
	buildGuarded(t, upstreamAway)
	_, url, admin := startServe(t, "--nats-listen=127.0.0.1:0")
	for range 5 {
		if status, code := answerOf(t, url+"/call"); status != http.StatusBadGateway || code != "dependency_failed" {
			t.Fatalf("a dependency that is not there answers %d %s", status, code)
		}
	}
	var all []objects.Snapshot
	if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, admin+"/objects")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Name != "upstream" || all[0].Breaker == nil || all[0].Breaker.State != objects.StateOpen {
		t.Errorf("after five failures /objects shows %+v", all)
	}
	for path, want := range map[string]string{
		"/":        `<td class="open">open</td>`,
		"/metrics": "edgehost_requests_total{",
		"/healthz": "ok\n",
		"/readyz":  "ready\n",
	} {
		if got := fetch(t, http.DefaultClient, admin+path); !strings.Contains(got, want) {
			t.Errorf("%s shows no %q:\n%s", path, want, got)
		}
	}
}

func TestAdminRefusesWithProblemDocuments(t *testing.T) {
	handler := newAdmin(kvbucket.NewMemory(), slog.New(slog.DiscardHandler)).handler(prometheus.NewRegistry())
	for _, tt := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/nope", http.StatusNotFound, "no_route"},
		{"DELETE", "/objects", http.StatusMethodNotAllowed, "method_not_allowed"},
		{"POST", "/", http.StatusMethodNotAllowed, "method_not_allowed"},
		{"OPTIONS", "*", http.StatusNotFound, "no_route"},
	} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(tt.method, tt.path, nil))
		var document problemDocument
		err := json.Unmarshal(answer.Body.Bytes(), &document)
		if answer.Code != tt.status || document.Status != tt.status || document.Code != tt.code || err != nil ||
			answer.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s answers %d %v %s", tt.method, tt.path, answer.Code, answer.Header(), answer.Body)
		}
		if allow := answer.Header().Get("Allow"); (allow != "") != (tt.status == http.StatusMethodNotAllowed) {
			t.Errorf("%s %s allows %q", tt.method, tt.path, allow)
		}
	}
}

func TestObjectListAndGet(t *testing.T) {
	buildGuarded(t, "http://"+freeAddress(t))
	nats := freeAddress(t)
	_, url, _ := startServe(t, "--nats-listen="+nats)
	for range 5 {
		answerOf(t, url+"/call")
	}
	environ := []string{"NATS_URL=nats://" + nats}
	list := runArgs(t, environ, "object", "list")
	if list.code != exitOK || !strings.Contains(list.stdout, "shop/upstream  open") {
		t.Errorf("list exited with %d and printed %q %q", list.code, list.stdout, list.stderr)
	}
	if none := runArgs(t, environ, "-o", "json", "object", "list", "--namespace=other"); none.stdout != "[]\n" {
		t.Errorf("a namespace without objects is listed as %q", none.stdout)
	}
	for _, name := range []string{"upstream", "shop/upstream"} {
		var got objects.Snapshot
		out := runArgs(t, environ, "object", "get", name, "-o", "json")
		if err := json.Unmarshal([]byte(out.stdout), &got); err != nil || got.Breaker == nil || got.Breaker.State != objects.StateOpen {
			t.Errorf("get %s printed %q %q: %v", name, out.stdout, out.stderr, err)
		}
	}
	want := "edgehost: there is no object nope; \"edgehost object list\" shows those there are\n"
	if got := runArgs(t, environ, "object", "get", "nope"); got.code != exitFailure || got.stderr != want {
		t.Errorf("get nope exited with %d and printed %q", got.code, got.stderr)
	}
	if got := runArgs(t, environ, "object", "get", "upstream"); got.code != exitOK || !strings.Contains(got.stdout, "retry after") {
		t.Errorf("get exited with %d and printed %q", got.code, got.stdout)
	}
}

func TestAHostIsNotReadyBeforeItServesAnApp(t *testing.T) {
	a := newAdmin(kvbucket.NewMemory(), slog.New(slog.DiscardHandler))
	answer := httptest.NewRecorder()
	a.handler(prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d %s", answer.Code, answer.Body)
	}
}
