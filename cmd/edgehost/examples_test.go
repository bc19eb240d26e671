package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyExample copies an example into a module of its own, which is how an app
// of somebody else uses the SDK, and changes to the directory above it.
func copyExample(t *testing.T, name string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyTree(t, filepath.Join(root, "examples", name), filepath.Join(dir, name))
	requirements, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), strings.Replace(string(requirements), "module github.com/edgehost/edgehost\n", "module example\n", 1)+
		"\nrequire github.com/edgehost/edgehost v0.0.0\n\nreplace github.com/edgehost/edgehost => "+root+"\n")
	if err := copyFile(filepath.Join(root, "go.sum"), filepath.Join(dir, "go.sum")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
}

func TestHelloIsBuiltCheckedAndServed(t *testing.T) {
	copyExample(t, "hello")
	if got := runArgs(t, os.Environ(), "check", "hello"); got.code != exitFailure || !strings.Contains(got.stderr, "(run: edgehost build hello)") {
		t.Errorf("before the build, check exited with %d and printed %q", got.code, got.stderr)
	}
	if got := runArgs(t, os.Environ(), "build", "hello"); got.code != exitOK || got.stdout != "hello  hello/hello.wasm\n" {
		t.Fatalf("build exited with %d and printed %q %q", got.code, got.stdout, got.stderr)
	}
	if got := runArgs(t, os.Environ(), "check", "hello"); got.code != exitOK || got.stderr != "" {
		t.Errorf("after the build, check exited with %d and printed %q", got.code, got.stderr)
	}
	p := startProcess(t, nil, "dev", "hello", "--listen=127.0.0.1:0")
	url := p.await(t, `is served at (http://\S+)$`)
	if got := fetch(t, http.DefaultClient, url+"/hello/edge"); got != "hello, edge\n" {
		t.Errorf("hello answers %q", got)
	}
	p.interrupt(t)
}
