package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

func TestCheckNamesEveryModuleThatCannotBeServed(t *testing.T) {
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"a text file", []byte("#!/bin/sh\n"), "not a WebAssembly module"},
		{"an empty file", nil, "the module is empty"},
		{"a component", conformance.ComponentHeader(), "component"},
		{"an unknown import", conformance.UnknownImport("env", "nope"), "nope"},
		{"too large a memory", conformance.HugeMemory(2048), "memory"},
		{"no handler", conformance.NoHandle(), "edgehost_handle"},
		{"a function whose body is invalid", invalidBody(), "invalid"},
		{"a handler of another type", conformance.WrongHandle(), "edgehost_handle"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			writeApp(t, map[string]string{"edgehost.toml": strings.Replace(shopManifest, "STRIPE_KEY", "PATH", 1), "hello.wasm": string(test.module)})
			got := runArgs(t, os.Environ(), "check", "shop")
			if got.code != exitFailure || strings.Count(got.stderr, "\n") != 1 ||
				!strings.HasPrefix(got.stderr, "shop/edgehost.toml:3:10: ") || !strings.Contains(got.stderr, test.want) {
				t.Errorf("check of the app exited with %d and printed %q, want one line about %q", got.code, got.stderr, test.want)
			}
			got = runArgs(t, nil, "check", "shop/hello.wasm")
			if got.code != exitFailure || strings.Count(got.stderr, "\n") != 1 ||
				!strings.HasPrefix(got.stderr, "shop/hello.wasm: ") || !strings.Contains(got.stderr, test.want) {
				t.Errorf("check of the module exited with %d and printed %q, want one line about %q", got.code, got.stderr, test.want)
			}
		})
	}
}

// invalidBody returns a module with a function that pushes a number to return
// nothing.
func invalidBody() []byte {
	return []byte("\x00asm\x01\x00\x00\x00" + // and its sections:
		"\x01\x04\x01\x60\x00\x00" + // a type without parameters and results
		"\x03\x02\x01\x00" + // a function of the type
		"\x0a\x06\x01\x04\x00\x41\x07\x0b") // its body: i32.const 7, end
}

func TestCheckPrintsTheResolvedConfiguration(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": shopManifest, "hello.wasm": string(conformance.Hello())})
	got := runArgs(t, nil, "check", "shop")
	warning := "warning: shop/edgehost.toml:6:12: the secret STRIPE_KEY is not in the environment (set it before starting edgehost)\n"
	if got.code != exitOK || got.stderr != warning || !strings.Contains(got.stdout, "memory = '64MiB'\n") {
		t.Errorf("check exited with %d, warned %q and printed %q", got.code, got.stderr, got.stdout)
	}
	got = runArgs(t, nil, "-o", "json", "check", "shop")
	var r struct {
		OK       bool
		Warnings []string
		Manifest struct {
			Functions []struct{ Name, Timeout string }
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v in %q", err, got.stdout)
	}
	if !r.OK || len(r.Warnings) != 1 || len(r.Manifest.Functions) != 1 || r.Manifest.Functions[0].Timeout != "10s" {
		t.Errorf("as JSON, check printed %s", got.stdout)
	}
}

func TestCheckWarnsWhatIsolationCosts(t *testing.T) {
	m, err := wasmbin.Decode(conformance.Hello())
	if err != nil {
		t.Fatal(err)
	}
	m.Elements = []wasmbin.Element{{Form: wasmbin.ElementNotActive}}
	m.Funcs[0].Body = append([]byte{0xfc, 13, 0}, m.Funcs[0].Body...) // elem.drop 0
	isolated := strings.Replace(shopManifest, "[function.hello]\n", "[function.hello]\nisolation = \"request\"\n", 1)
	writeApp(t, map[string]string{"edgehost.toml": strings.Replace(isolated, "STRIPE_KEY", "PATH", 1), "hello.wasm": string(m.Encode())})
	got := runArgs(t, os.Environ(), "check", "shop")
	if got.code != exitOK || !strings.HasPrefix(got.stderr, "warning: shop/edgehost.toml:3:13: isolation: every request starts an instance of its own") {
		t.Errorf("check exited with %d and printed %q", got.code, got.stderr)
	}
}

func TestCheckOfAModuleSaysThatItIsFine(t *testing.T) {
	writeApp(t, map[string]string{"hello.wasm": string(conformance.Hello())})
	got := runArgs(t, nil, "check", "shop/hello.wasm")
	if got.code != exitOK || got.stdout != "shop/hello.wasm: ok\n" || got.stderr != "" {
		t.Errorf("check exited with %d, printed %q and complained %q", got.code, got.stdout, got.stderr)
	}
}

func TestAnErrorIsOneLineForEachThatWasJoined(t *testing.T) {
	one, other := errors.New("runtime: a body:\n\tis invalid"), errors.New("other")
	both := fmt.Errorf("%w: %w", other, one)
	got := describe(errors.Join(one, nil, errors.Join(both, other)))
	if want := "edgehost: a body: is invalid\nedgehost: other: runtime: a body: is invalid\nedgehost: other"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
