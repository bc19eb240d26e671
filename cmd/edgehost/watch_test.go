package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlySourcesChangeTheDigest(t *testing.T) {
	tests := []struct {
		name, file string
		source     bool
	}{
		{"a source", "main.go", true},
		{"a source in a directory", "upstream/main.go", true},
		{"the manifest", "edgehost.toml", true},
		{"a module", "hello.wasm", false},
		{"the store", ".edgehost/nats/x", false},
		{"a hidden file", ".git/HEAD", false},
		{"an editor's copy", "main.go~", false},
		{"packages", "node_modules/a/index.js", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := watchShop(t)
			before, err := s.digest()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join("shop", test.file), "changed")
			after, err := s.digest()
			if err != nil {
				t.Fatal(err)
			}
			if got := before != after; got != test.source {
				t.Errorf("the digest changed: %v, want %v", got, test.source)
			}
		})
	}
}

func TestSourcesInNewDirectoriesAreSeen(t *testing.T) {
	s := watchShop(t)
	if err := os.Mkdir("shop/new", 0o755); err != nil {
		t.Fatal(err)
	}
	await := func(what string) {
		t.Helper()
		for event := range s.watcher.Events {
			if s.changed(event) && filepath.Clean(event.Name) == what {
				return
			}
		}
	}
	await("shop/new")
	write(t, "shop/new/main.go", "package new")
	await("shop/new/main.go")
}

func watchShop(t *testing.T) *sources {
	t.Helper()
	writeApp(t, withBuild("true"))
	a, err := readApp("shop", &terminal{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := watchSources(a)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.watcher)
	return s
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
