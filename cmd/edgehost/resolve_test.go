package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
	"github.com/edgehost/edgehost/runtime/attempt"
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
	policy := objects.Policy{
		FailureThreshold: 5, ResetAfter: 30 * time.Second, MaxResetAfter: 5 * time.Minute, Timeout: 5 * time.Second,
	}
	byRate := policy
	byRate.Mode, byRate.FailureThreshold = objects.ModeRate, 0
	byRate.FailureRate, byRate.Window, byRate.MinCalls, byRate.SlowCall, byRate.SlowCallRate = 0.25, time.Minute, 7, time.Second, 0.75
	retry := attempt.Policy{Attempts: 3, BaseDelay: 50 * time.Millisecond, MaxDelay: 500 * time.Millisecond, Budget: 0.2}
	for name, test := range map[string]struct {
		keys string
		want runtime.DependencyConfig
	}{
		"by the defaults": {"", runtime.DependencyConfig{Timeout: 5 * time.Second, Policy: policy, Retry: retry}},
		"by failures in a row": {
			`timeout = "2s"
max_in_flight = 8
breaker = { failure_threshold = 3, reset_after = "1s", max_reset_after = "2m", ramp = "30s", on_store_loss = "hold", probe = "GET /healthz" }
`,
			runtime.DependencyConfig{Timeout: 2 * time.Second, Probe: "GET /healthz", Retry: retry, Policy: objects.Policy{
				FailureThreshold: 3, ResetAfter: time.Second, MaxResetAfter: 2 * time.Minute, Timeout: 2 * time.Second,
				OnStoreLoss: objects.StoreLossHold, MaxInFlight: 8, Ramp: 30 * time.Second,
			}},
		},
		"by a rate": {
			`breaker = { mode = "rate", failure_rate = 0.25, window = "1m", min_calls = 7, slow_call = "1s", slow_call_rate = 0.75 }
`,
			runtime.DependencyConfig{Timeout: 5 * time.Second, Policy: byRate, Retry: retry},
		},
		"by retries": {
			`retry = { attempts = 5, base_delay = "10ms", max_delay = "2s", budget = 0.5 }
exclude = ["404", "timeout"]
idempotency_header = "Payment-Key"
`,
			runtime.DependencyConfig{
				Timeout: 5 * time.Second, Policy: policy, Exclude: []string{"404", "timeout"}, IdempotencyHeader: "Payment-Key",
				Retry: attempt.Policy{Attempts: 5, BaseDelay: 10 * time.Millisecond, MaxDelay: 2 * time.Second, Budget: 0.5},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			writeApp(t, map[string]string{"edgehost.toml": shopManifest + "[dependency.payments]\nurl = \"http://payments.shop.svc:8080\"\n" + test.keys})
			a, err := readApp("shop", &terminal{})
			if err != nil {
				t.Fatal(err)
			}
			test.want.Name, test.want.Namespace, test.want.URL = "payments", "shop", "http://payments.shop.svc:8080"
			got := a.resolve(nil, nil).Dependencies[0]
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the engine gets (-want +got):\n%s", diff)
			}
		})
	}
}
