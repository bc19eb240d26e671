package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
