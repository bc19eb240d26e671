//go:build !wasip1

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// A stored is a settings service with the settings of one guild.
type stored struct {
	settings string
	fences   []string // of the writes
	status   int      // of their answers
}

func (s *stored) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, s.settings)
		return
	}
	s.fences = append(s.fences, r.Header.Get("Edgehost-Fence"))
	body, _ := io.ReadAll(r.Body)
	s.settings = string(body)
	w.WriteHeader(s.status)
}

// newHost serves the function with the service, and lets it have the lease of
// every guild.
func newHost(t *testing.T, s *stored) *edgetest.Host {
	t.Helper()
	host := edgetest.New(t)
	host.Route("GET /guilds/{id}")
	host.Route("PATCH /guilds/{id}")
	host.AllowObjects("guild-settings/*")
	host.Dependency("settings", s)
	return host
}

func patch(host *edgetest.Host, body string) *edgetest.Response {
	return host.Serve(httptest.NewRequest("PATCH", "/guilds/7", strings.NewReader(body)))
}

func TestAChangeIsMergedAndWrittenUnderItsFence(t *testing.T) {
	s := &stored{settings: `{"motd":"hello","color":"red"}`, status: http.StatusOK}
	host := newHost(t, s)
	const want = `{"color":"blue","motd":"hello"}`
	if got := patch(host, `{"color":"blue"}`); got.Status != http.StatusOK || string(got.Body) != want+"\n" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if len(s.fences) != 1 || s.fences[0] == "" || s.settings != want {
		t.Errorf("the service got %s under the fences %q", s.settings, s.fences)
	}
	if got := host.Serve(httptest.NewRequest("GET", "/guilds/7", http.NoBody)); string(got.Body) != want+"\n" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

func TestAChangeThatCannotBeMade(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*edgetest.Host, *stored)
		body    string
		code    edge.Code
		writes  int
	}{
		"while another request makes one": {func(h *edgetest.Host, _ *stored) { h.HoldLease("guild-settings/7", "main", time.Second) }, `{}`, edge.LeaseBusy, 0},
		"after a newer one":               {func(_ *edgetest.Host, s *stored) { s.status = http.StatusConflict }, `{}`, edge.Fenced, 1},
		"in a service that fails":         {func(_ *edgetest.Host, s *stored) { s.status = http.StatusInternalServerError }, `{}`, edge.DependencyFailed, 1},
		"that is no object":               {func(*edgetest.Host, *stored) {}, `[]`, edge.Invalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stored{settings: `{}`, status: http.StatusOK}
			host := newHost(t, s)
			tc.prepare(host, s)
			if got := patch(host, tc.body); got.Code != tc.code || len(s.fences) != tc.writes {
				t.Errorf("got %d %v after %d writes, want %v after %d", got.Status, got.Code, len(s.fences), tc.code, tc.writes)
			}
		})
	}
}
