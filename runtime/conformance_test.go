package runtime_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
)

// The rules of the guest ABI, each by a case of the kit.
func TestEngineConformsToTheGuestABI(t *testing.T) {
	conformance.Run(t, deployer(t, runtime.IsolationInstance))
}

func TestEngineThatRestoresConformsToTheGuestABI(t *testing.T) {
	conformance.Run(t, deployer(t, runtime.IsolationRequest))
}

// The Go SDK, by a guest that is compiled here.
func TestGoSDKConforms(t *testing.T) {
	out := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", out, "../guests/conformance/testdata/edge")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	guest, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for name, isolation := range map[string]runtime.Isolation{"instance": runtime.IsolationInstance, "request": runtime.IsolationRequest} {
		t.Run(name, func(t *testing.T) { conformance.RunSDK(t, guest, deployer(t, isolation)) })
	}
}

// deployer serves deployments of the kit on engines that share their objects.
func deployer(t *testing.T, isolation runtime.Isolation) func(*testing.T, conformance.Deployment) string {
	t.Helper()
	host, err := objects.Open(t.Context(), objects.Config{
		Bucket: kvbucket.NewMemory(),
		Host:   "conformance",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := host.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return func(t *testing.T, d conformance.Deployment) string {
		t.Helper()
		h := open(t, runtime.Config{Objects: host})
		app := deployedApp(d)
		app.Functions[0].Isolation = isolation
		h.deploy(t, app)
		return h.url
	}
}

// deployedApp is a deployment of the kit in the runtime's terms.
func deployedApp(d conformance.Deployment) runtime.App {
	f := runtime.FunctionConfig{
		Name:           "guest",
		Module:         d.Module,
		Routes:         d.Routes,
		Timeout:        d.Timeout,
		MaxRequestBody: d.MaxRequestBody,
		Env:            d.Env,
		Secrets:        d.Secrets,
		AllowHosts:     d.AllowHosts,
		Objects:        d.Objects,
	}
	app := runtime.App{Name: "conformance" + d.Routes[0]}
	for _, dependency := range d.Dependencies {
		f.Dependencies = append(f.Dependencies, dependency.Name)
		app.Dependencies = append(app.Dependencies, runtime.DependencyConfig{
			Name:    dependency.Name,
			URL:     dependency.URL,
			Timeout: dependency.Timeout,
			Policy: objects.Policy{
				FailureThreshold: dependency.FailureThreshold,
				ResetAfter:       dependency.ResetAfter,
			},
		})
	}
	app.Functions = []runtime.FunctionConfig{f}
	return app
}
