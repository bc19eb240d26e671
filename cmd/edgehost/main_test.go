package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

// runArgs runs a command line that ends by itself.
func runArgs(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr, environ)
	return result{code, stdout.String(), stderr.String()}
}

// writeApp makes the directory of an app with these files, and changes to its
// parent, so that messages name it "shop".
func writeApp(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		file := filepath.Join("shop", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const shopManifest = `app = "shop"
[function.hello]
module = "hello.wasm"
build = "BUILD"
routes = ["GET /hello"]
secrets = ["STRIPE_KEY"]
`

func withBuild(command string) map[string]string {
	return map[string]string{"edgehost.toml": strings.Replace(shopManifest, "BUILD", command, 1)}
}

func TestMistakesInTheCommandLineExitWith2(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "edgehost: a command is missing"},
		{"a command that there is not", []string{"deploi"}, "edgehost: unexpected argument deploi"},
		{"a flag that there is not", []string{"version", "--nope"}, "edgehost: unknown flag --nope"},
		{"an output that there is not", []string{"-o", "xml", "version"}, `edgehost: --output must be one of "text","json" but got "xml"`},
		{"serve without a directory", []string{"serve"}, `edgehost: expected "<dir>"`},
		{"two stores", []string{"serve", "shop", "--embedded=a", "--nats=b"}, "edgehost: --embedded and --nats can't be used together"},
		{"serve with an empty directory", []string{"serve", ""}, "edgehost: <dir>: the path is empty"},
		{"dev with an empty directory", []string{"dev", ""}, "edgehost: [<dir>]: the path is empty"},
		{"build with an empty directory", []string{"build", ""}, "edgehost: [<dir>]: the path is empty"},
		{"check of an empty path", []string{"check", ""}, "edgehost: [<path>]: the path is empty"},
		{"replicas of the embedded store", []string{"serve", "shop", "--embedded=a", "--replicas=3"}, "edgehost: --replicas has no effect here"},
		{"replicas of the store of the app", []string{"serve", "shop", "--replicas=1"}, "edgehost: --replicas has no effect here"},
		{"credentials for the embedded store", []string{"serve", "shop", "--embedded=a", "--creds=b"}, "edgehost: --creds has no effect here"},
		{"lazy writes of another store", []string{"serve", "shop", "--nats=a", "--sync=lazy"}, "edgehost: --sync=lazy has no effect here"},
		{"an address of another store", []string{"serve", "shop", "--nats=a", "--nats-listen=127.0.0.1:0"}, "edgehost: --nats-listen has no effect here"},
		{"a time below zero", []string{"serve", "shop", "--drain-timeout=-1s"}, "edgehost: --drain-timeout -1s is below zero"},
		{"an address without a port", []string{"serve", "shop", "--listen=localhost"}, `edgehost: --listen: "localhost" is no HOST:PORT`},
		{"a port without an address", []string{"dev", "--admin=8081"}, `edgehost: --admin: "8081" is no HOST:PORT`},
		{"an address that is a URL", []string{"dev", "--nats-listen=nats://127.0.0.1:4222"}, `edgehost: --nats-listen: "nats://127.0.0.1:4222" is no HOST:PORT`},
		{"a port that there is not", []string{"serve", "shop", "--listen=127.0.0.1:65536"}, `edgehost: --listen: "127.0.0.1:65536" is no HOST:PORT`},
		{"an empty address", []string{"serve", "shop", "--listen="}, `edgehost: --listen: "" is no HOST:PORT`},
		{"a certificate without a key", []string{"serve", "shop", "--tls-cert=a"}, "edgehost: --tls-cert and --tls-key must be used together"},
		{"a log level that there is not", []string{"dev", "--log-level=loud"}, "edgehost: --log-level:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := runArgs(t, nil, test.args...)
			if got.code != exitUsage || !strings.HasPrefix(got.stderr, test.want) {
				t.Errorf("edgehost %v exited with %d and printed %q, want 2 and %q", test.args, got.code, got.stderr, test.want)
			}
		})
	}
}

func TestHelpGoesToStdoutAndExitsWith0(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"dev", "--help"}, {"serve", "--help"}, {"object", "--help"}} {
		got := runArgs(t, nil, args...)
		if got.code != exitOK || got.stderr != "" || !strings.HasPrefix(got.stdout, "Usage: edgehost ") {
			t.Errorf("edgehost %v exited with %d, printed %q and complained %q", args, got.code, got.stdout, got.stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := runArgs(t, nil, "version"); got.code != exitOK || !strings.HasPrefix(got.stdout, "edgehost ") {
		t.Errorf("version exited with %d and printed %q", got.code, got.stdout)
	}
	var b build
	got := runArgs(t, []string{"EDGEHOST_OUTPUT=json"}, "version")
	if err := json.Unmarshal([]byte(got.stdout), &b); err != nil || !strings.HasPrefix(b.Go, "go1.") {
		t.Errorf("version as JSON, asked for by the environment, printed %q: %v", got.stdout, err)
	}
}

func TestFlagsOverrideTheEnvironment(t *testing.T) {
	got := runArgs(t, []string{"EDGEHOST_OUTPUT=json"}, "version", "--output=text")
	if !strings.HasPrefix(got.stdout, "edgehost ") {
		t.Errorf("version printed %q, want text", got.stdout)
	}
}

func TestAppsThatCannotBeReadAreExplainedInOneLine(t *testing.T) {
	writeApp(t, map[string]string{"other.txt": ""})
	missing := "edgehost: there is no edgehost.toml in shop: name the directory of an app, such as \"edgehost dev examples/payments\"\n"
	tests := []struct {
		name, path, want string
	}{
		{"a directory without a manifest", "shop", missing},
		{"a directory that there is not", "shopp", "edgehost: there is no directory shopp\n"},
		{"a file", "shop/other.txt", "edgehost: shop/other.txt is not a directory: name the one that holds edgehost.toml\n"},
	}
	for _, test := range tests {
		for _, command := range []string{"dev", "serve", "build"} {
			t.Run(command+" "+test.name, func(t *testing.T) {
				if diff := cmp.Diff(result{exitFailure, "", test.want}, runArgs(t, nil, command, test.path), cmp.AllowUnexported(result{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
	if err := os.Mkdir("shop/edgehost.toml", 0o755); err != nil {
		t.Fatal(err)
	}
	got := runArgs(t, nil, "build", "shop")
	if want := "edgehost: reading the manifest: read shop/edgehost.toml: is a directory\n"; got.stderr != want {
		t.Errorf("a manifest that is a directory gave %q, want %q", got.stderr, want)
	}
}

func TestBuildRunsTheCommandForWasmAndPrintsTheModule(t *testing.T) {
	writeApp(t, withBuild("echo $GOOS/$GOARCH in $(basename $PWD); touch hello.wasm"))
	got := runArgs(t, os.Environ(), "build", "shop")
	want := result{exitOK, "hello  shop/hello.wasm\n", "wasip1/wasm in shop\n"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBuildExplainsWhatFailed(t *testing.T) {
	tests := []struct {
		name, command string
		environ       []string
		want          string
	}{
		{"a command that fails", "exit 3", nil, "shop/edgehost.toml:4:9: building the function hello failed: exit status 3 (the command was: exit 3)\n"},
		{"no Go", "go build -o hello.wasm", []string{"PATH=" + t.TempDir()}, "shop/edgehost.toml:4:9: building the function hello failed: exit status 127 (the program go is not in PATH: install Go from https://go.dev/dl/)\n"},
		{"another program that is missing", "nosuchprogram --x", nil, "shop/edgehost.toml:4:9: building the function hello failed: exit status 127 (the program nosuchprogram is not in PATH)\n"},
		{"a command that makes nothing", "true", nil, "shop/edgehost.toml:3:10: there is no module shop/hello.wasm (its build command does not make it)\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			writeApp(t, withBuild(test.command))
			got := runArgs(t, test.environ, "build", "shop")
			if got.code != exitFailure || !strings.HasSuffix(got.stderr, test.want) {
				t.Errorf("exited with %d and printed %q, want 1 and %q at the end", got.code, got.stderr, test.want)
			}
		})
	}
}

func TestCheckReportsEveryProblem(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": "app = \"shop\"\ncolour = \"red\"\n[function.hello]\nmodule = 3\nroutes = [\"GET\"]\n"})
	want := `shop/edgehost.toml:2:1: unknown key colour (at the top level you can use app, function, dependency, dev)
shop/edgehost.toml:4:10: module must be text in quotes, not the number 3 (write module = "…")
shop/edgehost.toml:5:11: routes: bad pattern "GET": at offset 0: host/path missing / (write "[METHOD ][HOST]/PATH", such as "POST /orders/{id}")
`
	if diff := cmp.Diff(result{exitFailure, "", want}, runArgs(t, nil, "check", "shop"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var r report
	got := runArgs(t, nil, "-o", "json", "check", "shop")
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v in %q", err, got.stdout)
	}
	if got.code != exitFailure || got.stderr != "" || r.OK || strings.Join(r.Problems, "\n")+"\n" != want {
		t.Errorf("as JSON, check exited with %d and printed %s", got.code, got.stdout)
	}
}

func TestCheckNamesAModuleThatIsNotBuilt(t *testing.T) {
	writeApp(t, withBuild("make"))
	got := runArgs(t, []string{"STRIPE_KEY=x"}, "check", "shop")
	want := "shop/edgehost.toml:3:10: there is no module shop/hello.wasm (run: edgehost build shop)\n"
	if got.code != exitFailure || got.stderr != want {
		t.Errorf("check exited with %d and printed %q, want %q", got.code, got.stderr, want)
	}
}

func TestAMissingSecretStopsServeAndDev(t *testing.T) {
	writeApp(t, withBuild("touch hello.wasm"))
	want := "shop/edgehost.toml:6:12: the secret STRIPE_KEY is not in the environment (set it before starting edgehost)\n"
	for _, command := range []string{"dev", "serve"} {
		got := runArgs(t, nil, command, "shop", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--nats-listen=127.0.0.1:0")
		if got.code != exitFailure || got.stderr != want {
			t.Errorf("%s exited with %d and printed %q, want %q", command, got.code, got.stderr, want)
		}
	}
}

func TestABusyPortThatWasAskedForNamesItsFlag(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, busy)
	writeApp(t, withBuild("true"))
	for _, flag := range []string{"listen", "admin", "nats-listen"} {
		args := []string{"serve", "shop", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--nats-listen=127.0.0.1:0", "--" + flag + "=" + busy.Addr().String()}
		got := runArgs(t, []string{"STRIPE_KEY=x"}, args...)
		if want := "edgehost: --" + flag + " " + busy.Addr().String() + ": another program listens there\n"; got.stderr != want {
			t.Errorf("serve printed %q, want %q", got.stderr, want)
		}
	}
}

func TestABusyDefaultPortIsReplaced(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, busy)
	got, err := listen(t.Context(), "listen", "", busy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, got)
	if got.Addr().String() == busy.Addr().String() {
		t.Errorf("listen returned the busy address %s", got.Addr())
	}
}

func TestAStoreThatIsNotThereIsAClearError(t *testing.T) {
	writeApp(t, withBuild("true"))
	url := "nats://" + freeAddress(t)
	tests := []struct {
		name    string
		args    []string
		environ []string
	}{
		{"serve", []string{"serve", "shop", "--nats", url, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"}, []string{"STRIPE_KEY=x"}},
		{"object list", []string{"object", "list", "--nats", url}, nil},
		{"object get, with the address in the environment", []string{"object", "get", "payments"}, []string{"NATS_URL=" + url}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := runArgs(t, test.environ, test.args...)
			if got.code != exitFailure || !strings.HasPrefix(got.stderr, "edgehost: connecting to the store at "+url) {
				t.Errorf("exited with %d and printed %q", got.code, got.stderr)
			}
		})
	}
}

// freeAddress returns a loopback address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
