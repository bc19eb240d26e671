// Package manifest reads edgehost.toml: what an app consists of, with every
// limit resolved.
//
// The table of keys in keys.go is the whole format: it decodes, it knows the
// defaults and bounds, and it prints the reference (see [Reference]). A
// manifest is read to its end, so that one run reports all of its problems.
package manifest

import (
	"bytes"
	"fmt"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// FileName is the name of the manifest in the directory of an app.
const FileName = "edgehost.toml"

// A Manifest is what edgehost.toml says, with defaults filled in and
// environment variables expanded.
type Manifest struct {
	App          Text         `json:"app" toml:"app"`
	Functions    []Function   `json:"functions" toml:"-"`
	Dependencies []Dependency `json:"dependencies" toml:"-"`
	Dev          Dev          `json:"dev" toml:"dev"`
}

// TOML returns the manifest as a manifest that says everything: with defaults
// and the values of variables.
func (m *Manifest) TOML() ([]byte, error) {
	complete := struct {
		App          Text                  `toml:"app"`
		Functions    map[string]Function   `toml:"function"`
		Dependencies map[string]Dependency `toml:"dependency,omitempty"`
		Dev          Dev                   `toml:"dev,omitempty"`
	}{m.App, map[string]Function{}, map[string]Dependency{}, m.Dev}
	for _, f := range m.Functions {
		complete.Functions[f.Name.Value] = f
	}
	for _, d := range m.Dependencies {
		complete.Dependencies[d.Name.Value] = d
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(complete); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	// The headers of tables that hold only tables say nothing.
	text := bytes.Replace(out.Bytes(), []byte("[function]\n"), nil, 1)
	return bytes.Replace(text, []byte("[dependency]\n"), nil, 1), nil
}

// A Function is a [function.NAME] table.
type Function struct {
	Name            Text            `json:"name" toml:"-"`
	Module          Text            `json:"module" toml:"module"`
	Build           Text            `json:"build" toml:"build,omitempty"`
	Routes          []Text          `json:"routes" toml:"routes"`
	Timeout         Duration        `json:"timeout" toml:"timeout"`
	Fuel            int             `json:"fuel" toml:"fuel"`
	Isolation       Text            `json:"isolation" toml:"isolation"`
	Memory          Size            `json:"memory" toml:"memory"`
	Env             map[string]Text `json:"env" toml:"env,omitempty"`
	Secrets         []Text          `json:"secrets" toml:"secrets,omitempty"` // their names; the values are not part of a manifest
	Dependencies    []Text          `json:"dependencies" toml:"dependencies,omitempty"`
	Objects         []Text          `json:"objects" toml:"objects,omitempty"`
	AllowHosts      []Text          `json:"allow_hosts" toml:"allow_hosts,omitempty"`
	Instances       int             `json:"instances" toml:"instances"`
	Queue           int             `json:"queue" toml:"queue"`
	QueueWait       Duration        `json:"queue_wait" toml:"queue_wait"`
	IdleTimeout     Duration        `json:"idle_timeout" toml:"idle_timeout"`
	MaxRequests     int             `json:"max_requests" toml:"max_requests"`
	MaxAge          Duration        `json:"max_age" toml:"max_age"`
	MaxRequestBody  Size            `json:"max_request_body" toml:"max_request_body"`
	MaxResponseBody Size            `json:"max_response_body" toml:"max_response_body"`
	MaxHeader       Size            `json:"max_header" toml:"max_header"`
	MaxCalls        int             `json:"max_calls" toml:"max_calls"`
	MaxLog          Size            `json:"max_log" toml:"max_log"`
}

// A Dependency is a [dependency.NAME] table.
type Dependency struct {
	Name        Text     `json:"name" toml:"-"`
	Namespace   Text     `json:"namespace" toml:"namespace"`
	URL         Text     `json:"url" toml:"url"`
	Addresses   []Text   `json:"addresses" toml:"addresses,omitempty"`
	Timeout     Duration `json:"timeout" toml:"timeout"`
	MaxInFlight int      `json:"max_in_flight" toml:"max_in_flight"`
	Breaker     Breaker  `json:"breaker" toml:"breaker"`
	Retry       Retry    `json:"retry" toml:"retry"`
	Exclude     []Text   `json:"exclude" toml:"exclude,omitempty"`

	IdempotencyHeader Text `json:"idempotency_header" toml:"idempotency_header,omitempty"`
}

// A Retry is a dependency's retry = { … }.
type Retry struct {
	Attempts  int      `json:"attempts" toml:"attempts"`
	BaseDelay Duration `json:"base_delay" toml:"base_delay"`
	MaxDelay  Duration `json:"max_delay" toml:"max_delay"`
	Budget    float64  `json:"budget" toml:"budget"`
}

// A Breaker is a dependency's breaker = { … }.
type Breaker struct {
	Mode             Text     `json:"mode" toml:"mode"`
	FailureThreshold int      `json:"failure_threshold,omitempty" toml:"failure_threshold,omitempty"`
	FailureRate      float64  `json:"failure_rate,omitempty" toml:"failure_rate,omitempty"`
	Window           Duration `json:"window,omitempty" toml:"window,omitempty"`
	MinCalls         int      `json:"min_calls,omitempty" toml:"min_calls,omitempty"`
	SlowCall         Duration `json:"slow_call,omitempty" toml:"slow_call,omitempty"`
	SlowCallRate     float64  `json:"slow_call_rate,omitempty" toml:"slow_call_rate,omitempty"`
	ResetAfter       Duration `json:"reset_after" toml:"reset_after"`
	MaxResetAfter    Duration `json:"max_reset_after" toml:"max_reset_after"`
	Ramp             Duration `json:"ramp" toml:"ramp"`
	OnStoreLoss      Text     `json:"on_store_loss" toml:"on_store_loss"`
	Probe            Text     `json:"probe" toml:"probe,omitempty"`
}

// Dev is the [dev] table, which only the command dev reads.
type Dev struct {
	Run []Text `json:"run" toml:"run,omitempty"`
}

// Parse reads the text of a manifest. The file is named in problems, and env
// looks up what ${NAME} in the text stands for. The error is a [Problems] with
// everything that is wrong; the manifest is then as complete as could be
// understood, or nil if the text is not TOML.
func Parse(file string, text []byte, env func(string) (string, bool)) (*Manifest, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // editors on Windows begin files with a byte order mark
	root, syntax := parseDocument(text)
	if syntax != nil {
		syntax.File = file
		return nil, Problems{*syntax}
	}
	d := &decoder{file: file, env: env}
	m := &Manifest{}
	decodeTable(d, manifestKeys(), m, root, "")
	d.checkFunctions(m)
	d.checkRoutes(m)
	d.checkDependencies(m)
	if len(d.problems) > 0 {
		return m, d.problems.sorted()
	}
	return m, nil
}

// decodeNamed decodes the tables under one name, such as [function.NAME], in
// the order of the document.
func decodeNamed[T any](d *decoder, keys []key[T], n *node, kind string, name func(*T) *Text) []T {
	if !d.table(n, kind+".NAME") {
		return nil
	}
	var all []T
	for _, e := range n.entries {
		if e.value.kind != unstable.Table {
			d.report(e.at, "write ["+kind+".NAME] above it", "%s is not in a table of a %s", quoteKey(e.name), kind)
			continue
		}
		path := kind + "." + quoteKey(e.name)
		if !isName(e.name) {
			d.report(e.at, nameHint, "%q cannot name a %s", e.name, kind)
		}
		var one T
		*name(&one) = Text{e.name, e.value.at}
		decodeTable(d, keys, &one, e.value, path)
		all = append(all, one)
	}
	return all
}

const (
	maxName  = 63
	nameHint = "names have 1 to 63 letters, digits, \"-\" and \"_\""
)

// isName reports whether name can name an app, a function or a dependency.
// Names become parts of keys in the store and labels of metrics.
func isName(name string) bool {
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}
