package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

func manifestKeys() []key[Manifest] {
	return []key[Manifest]{
		required(textKey("app", "the app's name: app = \"shop\"", func(m *Manifest) *Text { return &m.App })),
		{
			name: "function", takes: "tables", about: "[function.NAME] describes one function", required: true,
			set: func(d *decoder, m *Manifest, n *node) {
				m.Functions = decodeNamed(d, functionKeys(), n, "function", func(f *Function) *Text { return &f.Name })
			},
		},
		{
			name: "dependency", takes: "tables", about: "[dependency.NAME] describes one service that functions call",
			set: func(d *decoder, m *Manifest, n *node) {
				m.Dependencies = decodeNamed(d, dependencyKeys(), n, "dependency", func(dep *Dependency) *Text { return &dep.Name })
			},
		},
		{
			name: "dev", takes: "table", about: "what only `edgehost dev` does",
			set: func(d *decoder, m *Manifest, n *node) {
				if d.table(n, "dev") {
					decodeTable(d, devKeys(), &m.Dev, n, "dev")
				}
			},
		},
	}
}

func functionKeys() []key[Function] {
	return []key[Function]{
		required(textKey("module", "the WebAssembly file, relative to the manifest", func(f *Function) *Text { return &f.Module })),
		textKey("build", "the command that makes the module; it runs in the manifest's directory with GOOS=wasip1 GOARCH=wasm", func(f *Function) *Text { return &f.Build }),
		nonEmpty(listKey("routes", "at least 1", "the requests it serves, as patterns \"[METHOD ][HOST]/PATH\" of Go's http.ServeMux", func(f *Function) *[]Text { return &f.Routes })),
		durationKey("timeout", "10s", "1ms", "5m", "the client is answered after this time, whatever the function does", func(f *Function) *Duration { return &f.Timeout }),
		integerKey("fuel", 0, 0, 1_000_000_000_000_000, "how much one request may compute, in units that the log and edgehost_guest_fuel_total show; a request that needs more fails as function_failed. 0 is no limit", func(f *Function) *int { return &f.Fuel }),
		isolationKey(),
		sizeKey("memory", "64MiB", "64KiB", "4GiB", "the most memory an instance may have", func(f *Function) *Size { return &f.Memory }),
		envKey(),
		listKey("secrets", "", "names of secrets; each is read from the environment variable of the same name", func(f *Function) *[]Text { return &f.Secrets }),
		listKey("dependencies", "", "the dependencies it may call", func(f *Function) *[]Text { return &f.Dependencies }),
		listKey("objects", "", "the lease objects it may use: \"name\", \"class/name\" or \"class/*\"", func(f *Function) *[]Text { return &f.Objects }),
		listKey("allow_hosts", "", "hosts it may fetch from without a dependency: \"HOST[:PORT]\" by https, \"http://HOST[:PORT]\", and \"*.HOST\" for all names below it", func(f *Function) *[]Text { return &f.AllowHosts }),
		integerKey("instances", 32, 1, 1024, "how many requests run at once, each in an instance of its own", func(f *Function) *int { return &f.Instances }),
		integerKey("queue", 1024, 1, 65536, "how many requests may wait for an instance", func(f *Function) *int { return &f.Queue }),
		durationKey("queue_wait", "2s", "1ms", "1m", "how long a request may wait for an instance", func(f *Function) *Duration { return &f.QueueWait }),
		durationKey("idle_timeout", "1m", "1s", "24h", "an instance that nobody used for this long is closed", func(f *Function) *Duration { return &f.IdleTimeout }),
		integerKey("max_requests", 1_000_000, 1, 1_000_000_000, "an instance is replaced after this many requests", func(f *Function) *int { return &f.MaxRequests }),
		durationKey("max_age", "1h", "1s", "720h", "an instance is replaced after this time", func(f *Function) *Duration { return &f.MaxAge }),
		sizeKey("max_request_body", "1GiB", "1B", "1024GiB", "the largest request; bodies stream and are not held in memory", func(f *Function) *Size { return &f.MaxRequestBody }),
		sizeKey("max_response_body", "1GiB", "1B", "1024GiB", "the largest answer", func(f *Function) *Size { return &f.MaxResponseBody }),
		sizeKey("max_header", "64KiB", "1KiB", "1MiB", "the most header names and values in an answer", func(f *Function) *Size { return &f.MaxHeader }),
		integerKey("max_calls", 64, 1, 4096, "how many calls, leases and admissions a request may hold at once", func(f *Function) *int { return &f.MaxCalls }),
		sizeKey("max_log", "256KiB", "1B", "64MiB", "how much one request may log", func(f *Function) *Size { return &f.MaxLog }),
		laterKey[Function]("max_late_settlement"),
		laterKey[Function]("idempotency"),
		laterKey[Function]("lease"),
		laterKey[Function]("attach_wait"),
		laterKey[Function]("cache"),
	}
}

func dependencyKeys() []key[Dependency] {
	return []key[Dependency]{
		required(textKey("url", "where it is: http://HOST[:PORT][/PATH] or https://…", func(dep *Dependency) *Text { return &dep.URL })),
		listKey("addresses", "", "what its host name may resolve to besides public addresses: \"10.0.0.0/8\" for the services of a cluster, or single addresses; metadata services only singly", func(dep *Dependency) *[]Text { return &dep.Addresses }),
		textKey("namespace", "share one object between apps: those that name the same namespace", func(dep *Dependency) *Text { return &dep.Namespace }),
		durationKey("timeout", "5s", "1ms", "5m", "how long one call may take until the head of its answer", func(dep *Dependency) *Duration { return &dep.Timeout }),
		integerKey("max_in_flight", 0, 0, 1_000_000, "how many calls of this host may wait for the head of their answer at once; one more is refused as overloaded. 0 is no limit", func(dep *Dependency) *int { return &dep.MaxInFlight }),
		breakerKey(),
		retryKey(),
		excludeKey(),
		keyHeaderKey(),
		laterKey[Dependency]("cache"),
	}
}

func breakerKeys() []key[Breaker] {
	return []key[Breaker]{
		integerKey("failure_threshold", 5, 1, 1000, "failures in a row that open the breaker", func(b *Breaker) *int { return &b.FailureThreshold }),
		durationKey("reset_after", "30s", "100ms", "1h", "how long it stays open before one probe goes out", func(b *Breaker) *Duration { return &b.ResetAfter }),
		durationKey("max_reset_after", "5m", "100ms", "24h", "reset_after doubles with every failed probe, up to this", func(b *Breaker) *Duration { return &b.MaxResetAfter }),
		durationKey("ramp", "0s", "0s", "1h", "after it closed, the share of calls that go out grows from none to all over this time", func(b *Breaker) *Duration { return &b.Ramp }),
		storeLossKey(),
		probeKey(),
		modeKey(),
		fractionKey("failure_rate", 0.5, "with mode = \"rate\": the share of failing calls that opens it", func(b *Breaker) *float64 { return &b.FailureRate }),
		durationKey("window", "10s", "1s", "1h", "with mode = \"rate\": how far back calls count", func(b *Breaker) *Duration { return &b.Window }),
		integerKey("min_calls", 20, 1, 1_000_000, "with mode = \"rate\": how many calls of all hosts decide something", func(b *Breaker) *int { return &b.MinCalls }),
		durationKey("slow_call", "0s", "0s", "5m", "with mode = \"rate\": calls that take as long are slow. 0s: none are", func(b *Breaker) *Duration { return &b.SlowCall }),
		fractionKey("slow_call_rate", 1, "with slow_call: the share of slow calls that opens it", func(b *Breaker) *float64 { return &b.SlowCallRate }),
	}
}

// checkMode refuses the keys of the other mode, and leaves them empty: as a
// manifest, the resolved breaker says what holds and nothing else.
func (d *decoder) checkMode(b *Breaker, n *node) {
	other, names := "rate", []string{"failure_rate", "window", "min_calls", "slow_call", "slow_call_rate"}
	if b.Mode.Value == other {
		other, names = "run", []string{"failure_threshold"}
	}
	for _, name := range names {
		if e, ok := n.lookup(name); ok {
			d.report(e.at, "remove it, or write mode = "+strconv.Quote(other), "%s is for mode = %q", name, other)
		}
	}
	if e, ok := n.lookup("slow_call_rate"); ok && b.SlowCall == 0 && other == "run" {
		d.report(e.at, `write slow_call = "1s" beside it`, "slow_call_rate needs slow_call")
	}
	b.settleMode()
}

// settleMode empties what the mode does not have.
func (b *Breaker) settleMode() {
	if b.Mode.Value == "rate" {
		b.FailureThreshold = 0
	} else {
		b.FailureRate, b.Window, b.MinCalls, b.SlowCall = 0, 0, 0, 0
	}
	if b.SlowCall == 0 {
		b.SlowCallRate = 0
	}
}

func retryKeys() []key[Retry] {
	return []key[Retry]{
		integerKey("attempts", 3, 1, 10, "how often a call is made at most; 1 turns retries off", func(r *Retry) *int { return &r.Attempts }),
		durationKey("base_delay", "50ms", "1ms", "1m", "the longest pause before the first retry; the pause is random, and its longest doubles with each", func(r *Retry) *Duration { return &r.BaseDelay }),
		durationKey("max_delay", "500ms", "1ms", "1m", "the doubling ends here", func(r *Retry) *Duration { return &r.MaxDelay }),
		fractionKey("budget", 0.2, "how many retries there may be for each call, counted over all calls of this host in ten seconds; ten are always allowed", func(r *Retry) *float64 { return &r.Budget }),
	}
}

func devKeys() []key[Dev] {
	return []key[Dev]{
		listKey("run", "", "commands to run beside the app, in the manifest's directory; started and stopped with dev", func(d *Dev) *[]Text { return &d.Run }),
	}
}

func required[T any](k key[T]) key[T] {
	k.required, k.absent = true, ""
	return k
}

func isolationKey() key[Function] {
	const hint = `write isolation = "instance" or "request"`
	return key[Function]{
		name: "isolation", takes: "text", absent: `"instance"`, bounds: `"instance", "request"`,
		about: "what a request may find of earlier ones: with instance, what they left in the same instance; with request, nothing",
		init:  func(f *Function) { f.Isolation.Value = "instance" },
		set: func(d *decoder, f *Function, n *node) {
			text, ok := d.text(n, "isolation", `isolation = "request"`)
			switch {
			case !ok:
			case text.Value == "instance" || text.Value == "request":
				f.Isolation = text
			default:
				d.report(n.at, hint, "isolation: there is no %q", text.Value)
			}
		},
	}
}

func envKey() key[Function] {
	return key[Function]{
		name: "env", takes: "table of text", absent: "{}", about: "what the function's environment holds; values may use ${VAR} and ${VAR:-default}",
		init: func(f *Function) { f.Env = map[string]Text{} },
		set: func(d *decoder, f *Function, n *node) {
			if !d.table(n, "function."+quoteKey(f.Name.Value)+".env") {
				return
			}
			for _, e := range n.entries {
				d.variable(f.Env, e)
			}
		},
	}
}

// variable adds an entry of env. An environment is a list of NAME=VALUE that end
// with a NUL, which says what the two cannot hold (POSIX, section 8.1).
func (d *decoder) variable(env map[string]Text, e entry) {
	name := "env." + quoteKey(e.name)
	if e.name == "" || strings.ContainsAny(e.name, "=\x00") {
		d.report(e.at, "a name is not empty and has neither \"=\" nor NUL", "%q cannot name an environment variable", e.name)
		return
	}
	if e.value.kind == unstable.Table {
		d.report(e.at, `write NAME = "…"`, "%s must be text in quotes, not a table", name)
		return
	}
	text, ok := d.text(e.value, name, `NAME = "…"`)
	if !ok {
		return
	}
	text = d.expand(name, text)
	if strings.Contains(text.Value, "\x00") {
		d.report(text.At, "", "%s: a value cannot hold NUL", name)
		return
	}
	env[e.name] = text
}

func breakerKey() key[Dependency] {
	return key[Dependency]{
		name: "breaker", takes: "table", about: "when to stop calling it, and when to try again",
		init: func(dep *Dependency) {
			applyDefaults(breakerKeys(), &dep.Breaker)
			dep.Breaker.settleMode()
		},
		set: func(d *decoder, dep *Dependency, n *node) {
			path := "dependency." + quoteKey(dep.Name.Value) + ".breaker"
			if !d.table(n, path) {
				return
			}
			b := &dep.Breaker
			decodeTable(d, breakerKeys(), b, n, path)
			d.checkMode(b, n)
			if b.MaxResetAfter >= b.ResetAfter {
				return
			}
			if e, ok := n.lookup("max_reset_after"); ok {
				d.report(e.value.at, "allowed is from reset_after on", "max_reset_after is %s, less than the %s of reset_after", b.MaxResetAfter, b.ResetAfter)
			}
			b.MaxResetAfter = b.ResetAfter
		},
	}
}

func retryKey() key[Dependency] {
	return key[Dependency]{
		name: "retry", takes: "table", about: "when a call is tried again: if there is no connection, after 429 and 503, and, where it cannot have an effect twice, after 502, 504 and a broken connection",
		init: func(dep *Dependency) { applyDefaults(retryKeys(), &dep.Retry) },
		set: func(d *decoder, dep *Dependency, n *node) {
			path := "dependency." + quoteKey(dep.Name.Value) + ".retry"
			if !d.table(n, path) {
				return
			}
			r := &dep.Retry
			decodeTable(d, retryKeys(), r, n, path)
			if r.MaxDelay >= r.BaseDelay {
				return
			}
			if e, ok := n.lookup("max_delay"); ok {
				d.report(e.value.at, "allowed is from base_delay on", "max_delay is %s, less than the %s of base_delay", r.MaxDelay, r.BaseDelay)
			}
			r.MaxDelay = r.BaseDelay
		},
	}
}

func excludeKey() key[Dependency] {
	k := listKey("exclude", `"404", "4xx", "connect", "reset", "timeout"`, "what says nothing about the dependency: neither success nor failure for the breaker", func(dep *Dependency) *[]Text { return &dep.Exclude })
	set := k.set
	k.set = func(d *decoder, dep *Dependency, n *node) {
		set(d, dep, n)
		for _, entry := range dep.Exclude {
			if _, err := attempt.ParseExclusions([]string{entry.Value}); err != nil {
				d.report(entry.At, `write a status such as "404", a class such as "4xx", "connect", "reset" or "timeout"`, "exclude: there is no %q", entry.Value)
			}
		}
	}
	return k
}

func keyHeaderKey() key[Dependency] {
	const name, example = "idempotency_header", `idempotency_header = "Idempotency-Key"`
	return key[Dependency]{
		name: name, takes: "text", absent: "none", about: "the field by whose value the dependency knows that two requests are the same; a call that carries it is tried again like an idempotent one",
		set: func(d *decoder, dep *Dependency, n *node) {
			text, ok := d.text(n, name, example)
			if !ok {
				return
			}
			if err := attempt.CheckKeyHeader(text.Value); err != nil {
				d.report(n.at, "write "+example, "%s: %q cannot carry a key", name, text.Value)
				return
			}
			dep.IdempotencyHeader = text
		},
	}
}

func storeLossKey() key[Breaker] {
	return choiceKey("on_store_loss", "local", "hold",
		"what an open breaker does while the store has been away for 10s: \"local\" lets each host probe and close it for itself, \"hold\" keeps it open",
		func(b *Breaker) *Text { return &b.OnStoreLoss })
}

func modeKey() key[Breaker] {
	return choiceKey("mode", "run", "rate", "what opens it: \"run\", failures in a row, or \"rate\", the share of the fleet's calls that failed or were slow",
		func(b *Breaker) *Text { return &b.Mode })
}

// choiceKey describes a key that is one of two words, the first by default.
func choiceKey[T any](name, first, second, about string, field func(*T) *Text) key[T] {
	written := fmt.Sprintf("%s = %q or %q", name, first, second)
	return key[T]{
		name: name, takes: "text", absent: strconv.Quote(first), bounds: fmt.Sprintf("%q, %q", first, second), about: about,
		init: func(t *T) { field(t).Value = first },
		set: func(d *decoder, t *T, n *node) {
			text, ok := d.text(n, name, written)
			switch {
			case !ok:
			case text.Value == first, text.Value == second:
				*field(t) = text
			default:
				d.report(n.at, "write "+written, "%s: there is no %q", name, text.Value)
			}
		},
	}
}

func probeKey() key[Breaker] {
	const name, example = "probe", `probe = "GET /healthz"`
	return key[Breaker]{
		name: name, takes: "text", absent: "none", bounds: "GET, HEAD",
		about: "a request below the url that the hosts make at the end of reset_after to test for recovery; without it the next call is the test",
		set: func(d *decoder, b *Breaker, n *node) {
			text, ok := d.text(n, name, example)
			if !ok {
				return
			}
			if _, _, err := egress.ParseProbe(text.Value); err != nil {
				d.report(n.at, "write "+example, "%s: %q: %v", name, text.Value, err)
				return
			}
			b.Probe = text
		},
	}
}

// nonEmpty is a required list of at least one element.
func nonEmpty(k key[Function]) key[Function] {
	set := k.set
	k.set = func(d *decoder, f *Function, n *node) {
		if n.kind == unstable.Array && len(n.items) == 0 {
			d.report(n.at, "write "+k.name+` = ["…"]`, "%s is empty", k.name)
		}
		set(d, f, n)
	}
	return required(k)
}
