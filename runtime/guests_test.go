package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/edgehost/edgehost/runtime"
)

// guests builds each Go guest of testdata once.
var guests = struct {
	tools, hello, secrets func() ([]byte, error)
}{
	tools:   sync.OnceValues(func() ([]byte, error) { return build("tools", "c-shared") }),
	hello:   sync.OnceValues(func() ([]byte, error) { return build("hello", "c-shared") }),
	secrets: sync.OnceValues(func() ([]byte, error) { return build("secrets", "c-shared") }),
}

// build compiles a guest with the toolchain that runs the tests.
func build(name, mode string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode="+mode, "-ldflags=-s -w", "-o", out, "./testdata/guests/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build guest %s: %w\n%s", name, err, text)
	}
	return os.ReadFile(out)
}

// module returns the code of a Go guest.
func module(tb testing.TB, build func() ([]byte, error)) []byte {
	tb.Helper()
	b, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// codeCache keeps what the tests compile, for all of them.
var codeCache = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "edgehost-code") })

// tools is the function that does what its path says.
func tools(tb testing.TB) runtime.FunctionConfig {
	tb.Helper()
	return runtime.FunctionConfig{
		Name:   "tools",
		Module: module(tb, guests.tools),
		Routes: []string{"/tools/{what}"},
	}
}
