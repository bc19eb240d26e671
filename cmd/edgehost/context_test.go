package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/edgehost/edgehost/kvbucket"
)

// writeContext writes a context of the nats tool and returns the environment in
// which it is found.
func writeContext(t *testing.T, name, text string) []string {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + home}
}

// startGuardedServer starts a NATS server that lets only one user in.
func startGuardedServer(t *testing.T) *server.Server {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		Username: "shop", Password: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	return ns
}

func TestAContextOfTheNATSToolSaysHowToReachTheStore(t *testing.T) {
	ns := startGuardedServer(t)
	environ := writeContext(t, "prod", `{"description":"","url":"`+ns.ClientURL()+`","user":"shop","password":"secret","color_scheme":""}`)
	if got := runArgs(t, environ, "init", "--context=prod", "--replicas=1"); got.code != exitOK || !strings.Contains(got.stdout, "is ready") {
		t.Errorf("init exited with %d, printed %q and complained %q", got.code, got.stdout, got.stderr)
	}
	if got := runArgs(t, environ, "object", "list", "--context=prod"); got.code != exitOK {
		t.Errorf("object list exited with %d and complained %q", got.code, got.stderr)
	}
	if got := runArgs(t, environ, "object", "list", "--nats="+ns.ClientURL()); got.code != exitFailure || !strings.Contains(got.stderr, "Authorization Violation") {
		t.Errorf("without the context, object list exited with %d and complained %q", got.code, got.stderr)
	}
	environ = writeContext(t, "prod", `{"user":"shop","password":"secret"}`)
	if got := runArgs(t, environ, "hosts", "--context=prod", "--nats="+ns.ClientURL()); got.code != exitOK {
		t.Errorf("with its address beside the context, hosts exited with %d and complained %q", got.code, got.stderr)
	}
}

func TestContextsThatCannotBeUsedAreExplained(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"one that there is not", "", "there is no "},
		{"one that is no JSON", "url: x", "is not JSON"},
		{"one with settings that edgehost does not know to honour", `{"nsc":"nsc://x","jetstream_domain":"hub"}`, "does not support nsc and jetstream_domain"},
		{"one whose credentials are missing", `{"url":"nats://127.0.0.1:1","creds":"~/missing.creds"}`, "missing.creds: no such file"},
		{"one whose nkey is missing", `{"url":"nats://127.0.0.1:1","nkey":"/missing.nk"}`, "nkey /missing.nk"},
		{"one whose authority is missing", `{"url":"nats://127.0.0.1:1","ca":"/missing.pem"}`, "/missing.pem: no such file"},
		{"one with half a certificate", `{"url":"nats://127.0.0.1:1","cert":"/cert.pem"}`, "needs both a certificate and a key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environ := writeContext(t, "other", "{}")
			if test.text != "" {
				environ = writeContext(t, "prod", test.text)
			}
			got := runArgs(t, environ, "hosts", "--context=prod")
			if got.code != exitFailure || !strings.Contains(got.stderr, test.want) {
				t.Errorf("exited with %d and printed %q, want %q", got.code, got.stderr, test.want)
			}
		})
	}
}

func TestInitSaysHowOftenEachRecordIsKept(t *testing.T) {
	config := kvbucket.ServerConfig{Dir: t.TempDir(), Listen: freeAddress(t)}
	startStore(t, config)
	url := "--nats=nats://" + config.Listen
	if got := runArgs(t, nil, "init", url); got.code != exitUsage || !strings.Contains(got.stderr, "--replicas") {
		t.Errorf("without a number of replicas init exited with %d and printed %q", got.code, got.stderr)
	}
	if got := runArgs(t, nil, "init", url, "--replicas=3"); got.code != exitFailure || !strings.Contains(got.stderr, "3 replicas") {
		t.Errorf("three replicas on a single server: init exited with %d and printed %q", got.code, got.stderr)
	}
	for range 2 {
		var s setup
		got := runArgs(t, nil, "-o", "json", "init", url, "--replicas=1")
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || got.code != exitOK || s.Replicas != 1 || s.Bucket != bucketName {
			t.Errorf("init exited with %d, printed %q and complained %q", got.code, got.stdout, got.stderr)
		}
	}
	if got := runArgs(t, nil, "init", url, "--replicas=3"); got.code != exitFailure || !strings.Contains(got.stderr, "it has 1 replicas, not 3") {
		t.Errorf("a bucket with one replica: init for three exited with %d and printed %q", got.code, got.stderr)
	}
	if got := runArgs(t, nil, "-o", "json", "hosts", url); got.code != exitOK || got.stdout != "[]\n" {
		t.Errorf("without hosts, hosts exited with %d, printed %q and complained %q", got.code, got.stdout, got.stderr)
	}
}
