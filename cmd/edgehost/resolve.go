package main

import (
	"time"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
	"github.com/edgehost/edgehost/runtime/attempt"
)

// resolve puts an app's manifest, modules and secrets into the engine's terms.
// Every limit is stated, so that what `edgehost check` prints is what holds.
func (a *app) resolve(modules map[string][]byte, secrets map[string]string) runtime.App {
	resolved := runtime.App{Name: a.manifest.App.Value}
	for _, f := range a.manifest.Functions {
		resolved.Functions = append(resolved.Functions, resolveFunction(f, modules[f.Name.Value], secrets))
	}
	for _, d := range a.manifest.Dependencies {
		resolved.Dependencies = append(resolved.Dependencies, resolveDependency(d))
	}
	return resolved
}

func resolveFunction(f manifest.Function, module []byte, secrets map[string]string) runtime.FunctionConfig {
	config := runtime.FunctionConfig{
		Name:            f.Name.Value,
		Module:          module,
		Routes:          values(f.Routes),
		Timeout:         time.Duration(f.Timeout),
		Fuel:            int64(f.Fuel),
		Memory:          int64(f.Memory),
		Env:             map[string]string{},
		Secrets:         map[string]string{},
		Dependencies:    values(f.Dependencies),
		Objects:         values(f.Objects),
		AllowHosts:      values(f.AllowHosts),
		Instances:       f.Instances,
		Queue:           f.Queue,
		QueueWait:       time.Duration(f.QueueWait),
		IdleTimeout:     time.Duration(f.IdleTimeout),
		MaxRequests:     f.MaxRequests,
		MaxAge:          time.Duration(f.MaxAge),
		MaxRequestBody:  int64(f.MaxRequestBody),
		MaxResponseBody: int64(f.MaxResponseBody),
		MaxHeader:       int64(f.MaxHeader),
		MaxCalls:        f.MaxCalls,
		MaxLog:          int64(f.MaxLog),
	}
	if f.Isolation.Value == "request" {
		config.Isolation = runtime.IsolationRequest
	}
	for name, value := range f.Env {
		config.Env[name] = value.Value
	}
	for _, name := range f.Secrets {
		config.Secrets[name.Value] = secrets[name.Value]
	}
	return config
}

func resolveDependency(d manifest.Dependency) runtime.DependencyConfig {
	onStoreLoss := objects.StoreLossLocal
	if d.Breaker.OnStoreLoss.Value == "hold" {
		onStoreLoss = objects.StoreLossHold
	}
	mode := objects.ModeRun
	if d.Breaker.Mode.Value == "rate" {
		mode = objects.ModeRate
	}
	return runtime.DependencyConfig{
		Name:      d.Name.Value,
		Namespace: d.Namespace.Value,
		URL:       d.URL.Value,
		Addresses: values(d.Addresses),
		Timeout:   time.Duration(d.Timeout),
		Probe:     d.Breaker.Probe.Value,
		Retry: attempt.Policy{
			Attempts:  d.Retry.Attempts,
			BaseDelay: time.Duration(d.Retry.BaseDelay),
			MaxDelay:  time.Duration(d.Retry.MaxDelay),
			Budget:    d.Retry.Budget,
		},
		Exclude:           values(d.Exclude),
		IdempotencyHeader: d.IdempotencyHeader.Value,
		Policy: objects.Policy{
			Mode:             mode,
			FailureRate:      d.Breaker.FailureRate,
			Window:           time.Duration(d.Breaker.Window),
			MinCalls:         d.Breaker.MinCalls,
			SlowCall:         time.Duration(d.Breaker.SlowCall),
			SlowCallRate:     d.Breaker.SlowCallRate,
			FailureThreshold: d.Breaker.FailureThreshold,
			ResetAfter:       time.Duration(d.Breaker.ResetAfter),
			MaxResetAfter:    time.Duration(d.Breaker.MaxResetAfter),
			Timeout:          time.Duration(d.Timeout),
			OnStoreLoss:      onStoreLoss,
			MaxInFlight:      d.MaxInFlight,
			Ramp:             time.Duration(d.Breaker.Ramp),
		},
	}
}

func values(texts []manifest.Text) []string {
	plain := make([]string, len(texts))
	for i, text := range texts {
		plain[i] = text.Value
	}
	return plain
}
