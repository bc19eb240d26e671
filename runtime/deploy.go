package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/egress"
)

// An app is a deployed App.
type app struct {
	engine       *Engine
	name         string
	functions    []*function
	dependencies map[string]*dependency
}

// loadApp makes everything that an app needs. Nothing of it is left after an
// error.
func (e *Engine) loadApp(ctx context.Context, cfg App) (*app, error) {
	a := &app{engine: e, name: cfg.Name, dependencies: make(map[string]*dependency)}
	err := errors.Join(a.connect(cfg.Dependencies), a.load(ctx, cfg.Functions))
	if err != nil {
		e.yield(a)
		return nil, errors.Join(err, a.drain(ctx))
	}
	return a, nil
}

// yield leaves the objects of an app's dependencies to the apps that are served:
// their policies hold, and the one that goes makes no more probes. The caller
// holds mu.
func (e *Engine) yield(a *app) {
	policies := make(map[objects.ID]objects.Policy)
	for _, d := range a.dependencies {
		policy := d.cfg.Policy
		policy.Probe = nil
		policies[d.id()] = policy
	}
	for _, served := range e.table.Load().apps {
		for _, d := range served.dependencies {
			policies[d.id()] = d.cfg.Policy
		}
	}
	for id, policy := range policies {
		_, _ = e.objects.Dependency(id, policy) // it has been taken before
	}
}

func (a *app) connect(configs []DependencyConfig) error {
	var errs []error
	for _, cfg := range configs {
		d, err := newDependency(a.engine, cfg)
		if err != nil {
			errs = append(errs, fmt.Errorf("dependency %q: %w", cfg.Name, err))
			continue
		}
		a.dependencies[cfg.Name] = d
	}
	return errors.Join(errs...)
}

func (a *app) load(ctx context.Context, configs []FunctionConfig) error {
	modules, err := a.engine.loader.loadAll(ctx, configs)
	if err != nil {
		return err
	}
	var errs []error
	for i, cfg := range configs {
		plain, err := egress.NewPlain(cfg.AllowHosts, egress.Config{Logger: a.engine.logger})
		if len(cfg.Objects) > 0 && a.engine.objects == nil {
			err = errNoObjects
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("function %q: %w", cfg.Name, err), modules[i].close(ctx))
			continue
		}
		a.functions = append(a.functions, newFunction(a, cfg, modules[i], plain))
	}
	return errors.Join(errs...)
}

// loadAll loads the modules of several functions side by side. It returns either
// all of them or every error.
func (l *loader) loadAll(ctx context.Context, functions []FunctionConfig) ([]*module, error) {
	modules := make([]*module, len(functions))
	errs := make([]error, len(functions))
	var group sync.WaitGroup
	for i, f := range functions {
		group.Go(func() {
			m, err := l.load(ctx, f)
			if err != nil {
				errs[i] = prefixed(fmt.Sprintf("function %q", f.Name), err)
				return
			}
			modules[i] = m
		})
	}
	group.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return modules, nil
	}
	for _, m := range modules {
		if m != nil {
			err = errors.Join(err, m.close(ctx))
		}
	}
	return nil, err
}

// prefixed puts a prefix before each error that was joined into err, so that
// each stays a line of its own.
func prefixed(prefix string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", prefix, err)
	}
	var errs []error
	for _, each := range joined.Unwrap() {
		errs = append(errs, prefixed(prefix, each))
	}
	return errors.Join(errs...)
}

// drain lets the running requests end, until ctx is done, and releases the app.
func (a *app) drain(ctx context.Context) error {
	errs := make([]error, len(a.functions))
	var group sync.WaitGroup
	for i, f := range a.functions {
		group.Go(func() { errs[i] = f.drain(ctx) })
	}
	group.Wait()
	for _, d := range a.dependencies {
		d.drain(ctx)
	}
	return errors.Join(errs...)
}
