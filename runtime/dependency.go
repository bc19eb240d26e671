package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

// A dependency is a service that an app's functions may call, with the object
// that guards it.
type dependency struct {
	cfg      DependencyConfig
	object   *objects.Dependency
	client   *egress.Client
	excluded attempt.Exclusions
	retries  *attempt.Retries
	retried  *prometheus.CounterVec

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
	d := &dependency{cfg: cfg, client: client, retries: attempt.NewRetries(cfg.Retry, nil), retried: e.metrics.retries}
	d.excluded, _ = attempt.ParseExclusions(cfg.Exclude) // it has been checked
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

// probe makes the attempt that decides about the breaker. It does not end with
// the request that it is made for, because everybody waits for its verdict.
func (d *dependency) probe(ctx context.Context, req *http.Request, report func(attempt.Result)) attempt.Result {
	probing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unbind := context.AfterFunc(d.base, func() { cancel(context.Canceled) }) //nolint:contextcheck // it ends with the app
	results := make(chan attempt.Result)
	d.probes.Go(func() {
		defer unbind()
		r := measured(func() (*http.Response, error) { return limited(probing, req, d.cfg.Timeout, d.client.DoOnce) })
		report(r)
		select {
		case results <- r:
			return // the body is the caller's
		case <-ctx.Done():
		}
		if r.Err == nil {
			_ = r.Response.Body.Close() // nobody wants it
		}
		cancel(nil)
	})
	select {
	case r := <-results:
		if r.Err != nil {
			cancel(nil)
		} else { // from here on the answer is the request's, and ends with it
			context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		}
		r.Probe = true
		return r
	case <-ctx.Done():
		return attempt.Result{Err: fmt.Errorf("runtime: %w", context.Cause(ctx)), Probe: true}
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
	r := measured(func() (*http.Response, error) {
		req, err := d.client.NewRequest(ctx, method, target, nil)
		if err != nil {
			return nil, err
		}
		return limited(ctx, req, d.cfg.Timeout, d.client.DoOnce)
	})
	if r.Err == nil {
		defer func() { _ = r.Response.Body.Close() }() // its head is the verdict
	}
	return r.Outcome(d.cfg.Timeout, d.excluded)
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
// failure that opens the breaker wait for the store. The object counts what it
// dropped, and logs what could not be stored.
func (d *dependency) report(admission objects.Admission, o objects.Outcome) error {
	ctx, cancel := context.WithTimeout(d.base, reportTimeout)
	defer cancel()
	return admission.Report(ctx, o)
}
