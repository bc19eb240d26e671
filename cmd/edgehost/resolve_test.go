package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/objects"
)

func TestWhatADependencyMayReachIsPassedOn(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": shopManifest + `[dependency.payments]
url = "http://payments.shop.svc:8080"
addresses = ["10.0.0.0/8", "fd00::/8"]
`})
	a, err := readApp("shop", &terminal{})
	if err != nil {
		t.Fatal(err)
	}
	got := a.resolve(nil, nil).Dependencies[0]
	if diff := cmp.Diff([]string{"10.0.0.0/8", "fd00::/8"}, got.Addresses); diff != "" || got.URL != "http://payments.shop.svc:8080" {
		t.Errorf("the engine gets %q and addresses (-want +got):\n%s", got.URL, diff)
	}
}

func TestHowADependencyIsGuardedIsPassedOn(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": shopManifest + `[dependency.payments]
url = "http://payments.shop.svc:8080"
timeout = "2s"
max_in_flight = 8
breaker = { failure_threshold = 3, reset_after = "1s", max_reset_after = "2m", ramp = "30s", on_store_loss = "hold", probe = "GET /healthz" }
`})
	a, err := readApp("shop", &terminal{})
	if err != nil {
		t.Fatal(err)
	}
	got := a.resolve(nil, nil).Dependencies[0]
	want := objects.Policy{
		FailureThreshold: 3, ResetAfter: time.Second, MaxResetAfter: 2 * time.Minute, Timeout: 2 * time.Second,
		OnStoreLoss: objects.StoreLossHold, MaxInFlight: 8, Ramp: 30 * time.Second,
	}
	if diff := cmp.Diff(want, got.Policy); diff != "" || got.Probe != "GET /healthz" {
		t.Errorf("the engine gets the probe %q and the policy (-want +got):\n%s", got.Probe, diff)
	}
}
