package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/egress"
)

// A dependency is a service that an app's functions may call, with the object
// that guards it.
type dependency struct {
	cfg    DependencyConfig
	object *objects.Dependency
	client *egress.Client

	probes sync.WaitGroup // attempts that outlive the requests they were made for
	base   context.Context
	stop   context.CancelFunc
}

var errNoObjects = errors.New("there is no coordination to guard it with")

func newDependency(e *Engine, cfg DependencyConfig) (*dependency, error) {
	if e.objects == nil {
		return nil, errNoObjects
	}
	client, err := egress.NewDependency(cfg.URL, egress.Config{Logger: e.logger.With("dependency", cfg.Name), Addresses: cfg.Addresses})
	if err != nil {
		return nil, err
	}
	d := &dependency{cfg: cfg, client: client}
	d.base, d.stop = context.WithCancel(e.base)
	if cfg.Probe != "" {
		d.cfg.Policy.Probe = d.recovered
	}
	if d.object, err = e.objects.Dependency(d.id(), d.cfg.Policy); err != nil {
		d.stop()
		client.Close()
		return nil, err
	}
	return d, nil
}

func (d *dependency) id() objects.ID {
	return objects.ID{Namespace: d.cfg.Namespace, Name: d.cfg.Name}
}

// drain waits for the probes until ctx is done, and ends those that are left.
func (d *dependency) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, d.stop)
	defer stop()
	d.probes.Wait()
	d.stop()
	d.client.Close()
}

// An attempt is what came of one request to a dependency.
type attempt struct {
	response *http.Response
	err      error
}

// guarded makes one attempt if the dependency's breaker admits it, and reports
// what came of it. A timeout bounds the time until the head of the answer.
func (d *dependency) guarded(ctx context.Context, req *http.Request, timeout time.Duration) (*http.Response, error) {
	admission, err := d.object.Admit(ctx)
	if err != nil {
		return nil, err
	}
	if admission.Probe() {
		return d.probe(ctx, req, admission)
	}
	begun := time.Now()
	response, err := limited(ctx, req, timeout, d.client.Do)
	d.report(admission, outcomeOf(response, err, time.Since(begun), d.cfg.Timeout)) //nolint:contextcheck // the verdict must not end with the request
	return response, err
}

// probe makes the attempt that decides about the breaker. It does not end with
// the request that it is made for, because everybody waits for its verdict.
func (d *dependency) probe(ctx context.Context, req *http.Request, admission objects.Admission) (*http.Response, error) {
	probing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unbind := context.AfterFunc(d.base, func() { cancel(context.Canceled) }) //nolint:contextcheck // it ends with the app
	results := make(chan attempt)
	d.probes.Go(func() {
		defer unbind()
		begun := time.Now()
		response, err := limited(probing, req, d.cfg.Timeout, d.client.DoOnce)
		d.report(admission, outcomeOf(response, err, time.Since(begun), d.cfg.Timeout)) //nolint:contextcheck // it ends with the app
		select {
		case results <- attempt{response: response, err: err}:
			return // the body is the caller's
		case <-ctx.Done():
		}
		if err == nil {
			_ = response.Body.Close() // nobody wants it
		}
		cancel(nil)
	})
	select {
	case a := <-results:
		if a.err != nil {
			cancel(nil)
			return nil, a.err
		}
		// From here on the answer is the request's, and ends with it.
		context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		return a.response, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("runtime: %w", context.Cause(ctx))
	}
}

// recovered makes the request of the manifest that tells whether the dependency
// works again. It ends with the app.
func (d *dependency) recovered(ctx context.Context) objects.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.base, cancel)() //nolint:contextcheck // it ends with the app
	method, target, err := egress.ParseProbe(d.cfg.Probe)
	if err != nil {
		return objects.Excluded
	}
	begun := time.Now()
	req, err := d.client.NewRequest(ctx, method, target, nil)
	if err != nil {
		return outcomeOf(nil, err, time.Since(begun), d.cfg.Timeout)
	}
	response, err := limited(ctx, req, d.cfg.Timeout, d.client.DoOnce)
	if err == nil {
		defer func() { _ = response.Body.Close() }() // its head is the verdict
	}
	return outcomeOf(response, err, time.Since(begun), d.cfg.Timeout)
}

// limited sends a request and waits for the head of the answer, no longer than
// timeout. The answer's body is bounded by ctx only.
func limited(ctx context.Context, req *http.Request, timeout time.Duration, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(timeout, func() { cancel(abi.DeadlineExceeded) })
	response, err := do(req.WithContext(ctx))
	timer.Stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response.Body = &body{response.Body, cancel}
	return response, nil
}

// A body releases the context of its request when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// reportTimeout bounds how long a call waits for its verdict to be stored. The
// object goes on trying.
const reportTimeout = time.Second

// report tells the object what came of an attempt. Only a probe's report and the
// failure that opens the breaker wait for the store.
func (d *dependency) report(admission objects.Admission, o objects.Outcome) {
	ctx, cancel := context.WithTimeout(d.base, reportTimeout)
	defer cancel()
	_ = admission.Report(ctx, o) // the object counts what was dropped, and logs what could not be stored
}

// outcomeOf says what an attempt tells about the dependency. An attempt that its
// caller cut off tells nothing, unless the dependency had a fair chance to
// answer: half of the time that it is given at most.
func outcomeOf(response *http.Response, err error, took, timeout time.Duration) objects.Outcome {
	if err == nil {
		if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError {
			return objects.Failure
		}
		return objects.Success
	}
	failure, ok := errors.AsType[*egress.Error](err)
	if !ok {
		return objects.Failure
	}
	switch failure.Kind {
	case egress.Invalid, egress.Denied:
		return objects.Excluded
	case egress.Canceled:
		return objects.Canceled
	case egress.Timeout:
		if took < timeout/2 {
			return objects.Canceled
		}
	case egress.Connect, egress.BeforeWrite, egress.AfterWrite:
	}
	return objects.Failure
}
