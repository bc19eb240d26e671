package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

// An App is what is deployed together: functions, and the dependencies that
// they may reach. It is the resolved manifest; a zero value in it means the
// default that its comment names.
type App struct {
	Name         string
	Functions    []FunctionConfig
	Dependencies []DependencyConfig
}

// A FunctionConfig describes one function. What it does not allow is denied.
type FunctionConfig struct {
	Name   string
	Module []byte   // a core WebAssembly module that follows guests/abi/ABI.md
	Routes []string // http.ServeMux patterns: "[METHOD ][HOST]/[PATH]"

	Timeout           time.Duration // until the client is answered, waiting included; 10 s
	MaxLateSettlement time.Duration // how much longer the guest may run after that; 0, at most 5 min
	Fuel              int64         // of one request, in the units of wasmbin.Meter; no limit
	Memory            int64         // bytes of linear memory of one instance; 64 MiB, less than 4 GiB
	Isolation         Isolation     // what a request may find of earlier ones; IsolationInstance

	Env          map[string]string // what the guest reads as configuration
	Secrets      map[string]string // what it reads as secrets; never logged
	Dependencies []string          // names in App.Dependencies that it may call
	Objects      []string          // objects whose leases and state it may use: names, or prefixes that end in "/*"
	AllowHosts   []string          // hosts that it may fetch from without a dependency

	Instances   int           // instances at a time, each serving one request; 32
	Queue       int           // requests that may wait for an instance; 1024, and -1 for none
	QueueWait   time.Duration // how long they wait; 2 s
	IdleTimeout time.Duration // an instance unused for this long is closed; 1 min
	MaxRequests int           // an instance retires after this many; 1,000,000
	MaxAge      time.Duration // or after this time; 1 h

	MaxRequestBody  int64 // bytes; 1 GiB, since bodies stream and are not held
	MaxResponseBody int64 // bytes; 1 GiB
	MaxHeader       int64 // bytes of header names and values in an answer; 64 KiB
	MaxCalls        int   // calls, leases and admissions that one request may have open; 32
	MaxLog          int64 // bytes that one request may log; 256 KiB
}

// Isolation says what a request may find of those that its instance served
// before.
type Isolation int

// The kinds of isolation.
const (
	// IsolationInstance lets the state of an instance live on from request to
	// request, until the instance retires.
	IsolationInstance Isolation = iota

	// IsolationRequest serves every request in the state right after the
	// initialization of the guest. Initialization runs once for each deployment
	// on a host, and what it computed, random numbers included, is the same for
	// all requests. A module whose state is out of reach (wasmbin.ErrHidden) is
	// initialized for every request.
	IsolationRequest
)

// A DependencyConfig describes a service that functions call, and the object
// that guards it.
type DependencyConfig struct {
	Name      string
	Namespace string         // of its object; the app's name, so that apps do not share it
	URL       string         // http or https; the targets of requests are joined to it
	Addresses []string       // that its host may have besides public ones; see egress.Config
	Timeout   time.Duration  // of one attempt, until the head of the answer; 5 s
	Policy    objects.Policy // of the breaker
	Probe     string         // the request that Policy.Probe makes, such as "GET /healthz"; Policy's own
	Retry     attempt.Policy // what is tried again; Attempts: 1 for nothing
	Exclude   []string       // results that are no verdict about it; see attempt.ParseExclusions

	// IdempotencyHeader names the field by whose value the dependency knows that
	// two requests are the same. A call that carries it may be tried again
	// whatever its method. Empty: the dependency does not tell them apart.
	IdempotencyHeader string
}

// The largest values that a FunctionConfig may ask for.
const (
	maxLateSettlement = 5 * time.Minute
	maxMemory         = 1<<32 - pageSize // 65536 pages trip over the engine's own arithmetic
	pageSize          = 64 << 10
)

// resolved returns a copy with every default filled in.
func (c FunctionConfig) resolved() FunctionConfig {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Memory = cmp.Or(c.Memory, 64<<20)
	c.Instances = cmp.Or(c.Instances, 32)
	c.Queue = max(0, cmp.Or(c.Queue, 1024))
	c.QueueWait = cmp.Or(c.QueueWait, 2*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	c.MaxRequests = cmp.Or(c.MaxRequests, 1_000_000)
	c.MaxAge = cmp.Or(c.MaxAge, time.Hour)
	c.MaxRequestBody = cmp.Or(c.MaxRequestBody, 1<<30)
	c.MaxResponseBody = cmp.Or(c.MaxResponseBody, 1<<30)
	c.MaxHeader = cmp.Or(c.MaxHeader, 64<<10)
	c.MaxCalls = cmp.Or(c.MaxCalls, 32)
	c.MaxLog = cmp.Or(c.MaxLog, 256<<10)
	return c
}

// resolved returns a copy with every default filled in. The error is about Retry.
func (c DependencyConfig) resolved(app string) (_ DependencyConfig, err error) {
	c.Namespace = cmp.Or(c.Namespace, app)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Policy.Timeout == 0 {
		c.Policy.Timeout = c.Timeout // a probe lease outlives the attempt it was given for
	}
	c.Retry, err = c.Retry.Resolve()
	return c, err
}

// resolved returns a copy with every default filled in, or everything that is
// wrong with the app apart from its modules and routes.
func (a App) resolved() (App, error) {
	var errs []error
	if a.Name == "" {
		errs = append(errs, errors.New("the app has no name"))
	}
	names := make(map[string]bool)
	dependencies := make([]DependencyConfig, len(a.Dependencies))
	for i, d := range a.Dependencies {
		resolved, err := d.resolved(a.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("dependency %q: retry: %w", d.Name, err))
		}
		dependencies[i] = resolved
		if names[d.Name] {
			errs = append(errs, fmt.Errorf("dependency %q: is there twice", d.Name))
		}
		names[d.Name] = true
		errs = append(errs, dependencies[i].check()...)
	}
	functions := make([]FunctionConfig, len(a.Functions))
	seen := make(map[string]bool)
	for i, f := range a.Functions {
		functions[i] = f.resolved()
		if seen[f.Name] {
			errs = append(errs, fmt.Errorf("function %q: is there twice", f.Name))
		}
		seen[f.Name] = true
		for _, err := range functions[i].check(names) {
			errs = append(errs, fmt.Errorf("function %q: %w", f.Name, err))
		}
	}
	return App{a.Name, functions, dependencies}, errors.Join(errs...)
}

func (c DependencyConfig) check() (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("dependency %q: "+format, append([]any{c.Name}, args...)...))
	}
	if c.Name == "" || len(c.Name) > abi.MaxName {
		fail("its name must have 1 to %d bytes", abi.MaxName)
	}
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		fail("url %q is not an absolute http or https URL", c.URL)
	}
	if c.Timeout < 0 {
		fail("timeout %v is negative", c.Timeout)
	}
	if _, err := attempt.ParseExclusions(c.Exclude); err != nil {
		fail("exclude: %w", err)
	}
	if c.IdempotencyHeader != "" {
		if err := attempt.CheckKeyHeader(c.IdempotencyHeader); err != nil {
			fail("idempotency_header %q: %w", c.IdempotencyHeader, err)
		}
	}
	if c.Probe != "" {
		if _, _, err := egress.ParseProbe(c.Probe); err != nil {
			fail("probe %q: %w", c.Probe, err)
		}
	}
	return errs
}

func (c FunctionConfig) check(dependencies map[string]bool) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		fail("has no name")
	}
	if len(c.Routes) == 0 {
		fail("has no routes: nothing can reach it")
	}
	if c.Memory < pageSize || c.Memory > maxMemory {
		fail("memory %d is not between 64 KiB and 4 GiB", c.Memory)
	}
	if c.MaxLateSettlement < 0 || c.MaxLateSettlement > maxLateSettlement {
		fail("max_late_settlement %v is not between 0 and %v", c.MaxLateSettlement, maxLateSettlement)
	}
	for _, name := range c.Dependencies {
		if !dependencies[name] {
			fail("dependency %q is not one of the app's", name)
		}
	}
	for _, pattern := range c.Objects {
		if strings.Contains(strings.TrimSuffix(pattern, "/*"), "*") {
			fail("object %q: a star stands only for the rest of a name, as in \"settings/*\"", pattern)
		}
	}
	if c.Isolation != IsolationInstance && c.Isolation != IsolationRequest {
		fail("isolation %d is neither IsolationInstance nor IsolationRequest", c.Isolation)
	}
	if c.negative() {
		fail("a limit is negative")
	}
	return errs
}

func (c FunctionConfig) negative() bool {
	return min(c.Timeout, c.QueueWait, c.IdleTimeout, c.MaxAge) < 0 ||
		min(c.Instances, c.MaxRequests, c.MaxCalls) < 0 ||
		min(c.Fuel, c.MaxRequestBody, c.MaxResponseBody, c.MaxHeader, c.MaxLog) < 0
}

// allowsObject reports whether the function may use leases and state of an
// object.
func (c FunctionConfig) allowsObject(name string) bool {
	return slices.ContainsFunc(c.Objects, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return len(name) > len(prefix) && strings.HasPrefix(name, prefix)
		}
		return pattern == name
	})
}
