package runtime_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

var loggedFuel = regexp.MustCompile(` fuel=(\d+)`)

// counted returns the sum of a counter's series that have the label value.
func counted(t *testing.T, r *prometheus.Registry, name, value string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func TestEqualRequestsUseEqualFuel(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := open(t, runtime.Config{Metrics: registry})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{Name: "f", Module: conformance.CallTree(12)}}})
	for range 3 {
		h.get(t, "/f")
	}
	logged := loggedFuel.FindAllString(h.log.String(), -1)
	if len(logged) != 3 || logged[0] == " fuel=0" || len(slices.Compact(logged)) != 1 {
		t.Fatalf("logged %q, want three times the same", logged)
	}
	var each float64
	_, _ = fmt.Sscanf(logged[0], " fuel=%g", &each)
	if got := counted(t, registry, "edgehost_guest_fuel_total", "f"); got != 3*each {
		t.Errorf("edgehost_guest_fuel_total is %g after three requests of %g", got, each)
	}
}

func TestFuelGrowsWithTheWorkAndGoesOnToTheDeadline(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "f", Module: conformance.Loop(), Timeout: 50 * time.Millisecond})
	h.get(t, "/f")
	var fuel int
	if found := loggedFuel.FindString(h.log.String()); found != "" {
		_, _ = fmt.Sscanf(found, " fuel=%d", &fuel)
	}
	if fuel < 100_000 {
		t.Errorf("a guest that computed for 50ms used %d", fuel)
	}
}

func TestFuelIsLimited(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := open(t, runtime.Config{Metrics: registry})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "f", Module: conformance.Loop(), Fuel: 1_000_001, Timeout: time.Minute},
		{Name: "hello", Module: conformance.Hello(), Fuel: 1000},
	}})
	resp, body := h.get(t, "/f")
	wantProblem(t, resp, body, http.StatusBadGateway, "function_failed")
	if got := counted(t, registry, "edgehost_instances_retired_total", "fuel"); got != 1 {
		t.Errorf("%g instances retired for their fuel, want 1", got)
	}
	if got := counted(t, registry, "edgehost_guest_fuel_total", "f"); got < 1_000_001 || got > 1_000_200 {
		t.Errorf("used %g, want little more than 1000001", got)
	}
	for range 200 { // each request has all of it
		if resp, _ := h.get(t, "/hello"); resp.StatusCode != http.StatusOK {
			t.Fatalf("a request within the limit was answered %d", resp.StatusCode)
		}
	}
}

func TestGuestSeesTheFuelItHasLeft(t *testing.T) {
	unlimited := tools(t)
	limited := unlimited
	limited.Name, limited.Routes, limited.Fuel = "limited", []string{"/limited/{what}"}, 100_000_000
	h := serve(t, unlimited, limited)
	if _, body := h.get(t, "/tools/fuel"); body[:6] != "-1 -1 " {
		t.Errorf("got %q without a limit, want -1 twice", body)
	}
	for range 2 {
		var before, after, x int64
		_, body := h.get(t, "/limited/fuel")
		if _, err := fmt.Sscan(body, &before, &after, &x); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if before > limited.Fuel || before < limited.Fuel-10_000_000 {
			t.Errorf("%d is left at the beginning, the limit is %d", before, limited.Fuel)
		}
		if used := before - after; used < 1_000_000 || used > 50_000_000 {
			t.Errorf("a million steps used %d", used)
		}
	}
}

// What was kept of modules must not be taken for what is made of them now: if
// this fails, rewriting has changed, and so must its version.
func TestRewritingVersionChangesWithRewriting(t *testing.T) {
	const version, want = "rewritten-1", "ac6f2278ae09b411"
	sum := sha256.New()
	for _, s := range append(computing(), recursive()...) {
		if s.path != "" {
			continue
		}
		rewritten, err := runtime.Rewrite(s.module)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(rewritten)
	}
	if got := hex.EncodeToString(sum.Sum(nil))[:16]; got != want || runtime.RewritingVersion != version {
		t.Errorf("got %s by %s, want %s by %s", got, runtime.RewritingVersion, want, version)
	}
}

func TestRewrittenModulesAreKeptAndMended(t *testing.T) {
	cfg := runtime.Config{CacheDir: filepath.Join(t.TempDir(), "cache")}
	app := runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{Name: "f", Module: conformance.Hello()}}}
	open(t, cfg).deploy(t, app)
	kept, err := filepath.Glob(filepath.Join(cfg.CacheDir, runtime.RewritingVersion, "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v, want one file", kept, err)
	}
	whole, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(kept[0])
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v, %v: others may reach it", info.Mode(), err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	for name, damaged := range map[string][]byte{"empty": nil, "short": whole[:3], "cut off": whole[:len(whole)-1], "changed": flipped} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(kept[0], damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			h := open(t, cfg)
			h.deploy(t, app)
			if resp, _ := h.get(t, "/f"); resp.StatusCode != http.StatusOK {
				t.Errorf("answered %d", resp.StatusCode)
			}
			if mended, err := os.ReadFile(kept[0]); err != nil || !slices.Equal(mended, whole) {
				t.Errorf("not mended: %v", err)
			}
		})
	}
}
