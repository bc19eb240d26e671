package manifest_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
)

var update = flag.Bool("update", false, "write the reference instead of comparing it")

// environment is what tests expand variables from.
func environment(name string) (string, bool) {
	value, ok := map[string]string{"PAYMENTS_URL": "http://pay.example", "EMPTY": ""}[name]
	return value, ok
}

const smallest = `app = "shop"
[function.hello]
module = "hello.wasm"
routes = ["/"]
`

func TestProblemsAreReportedWithTheirPlaceAndAHint(t *testing.T) {
	function := "app = \"shop\"\n[function.hello]\nmodule = \"hello.wasm\"\nroutes = [\"/\"]\n"
	dependency := smallest + "[dependency.payments]\nurl = \"http://pay.example\"\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{"text that is not TOML", "app = \"shop\"\nfunction = = 3\n", []string{
			`edgehost.toml:2:12: not valid TOML: unexpected character U+003D '=' at start of value`,
		}},
		{"columns count characters, not bytes", "app = \"shöp\" = 3\n", []string{
			`edgehost.toml:1:14: not valid TOML: expected newline but got U+003D '='`,
		}},
		{"a key defined twice", smallest + "routes = [\"/b\"]\n", []string{
			`edgehost.toml:5:1: not valid TOML: key routes is already defined`,
		}},
		{"a table defined twice", smallest + "[function.hello]\n", []string{
			`edgehost.toml:5:2: not valid TOML: table hello already exists`,
		}},
		{"a value that is also used as a table", "app = \"shop\"\napp.x = 1\n[function.hello]\nmodule = \"hello.wasm\"\nroutes = [\"/\"]\n", []string{
			`edgehost.toml:2:1: not valid TOML: key app is already defined`,
		}},
		{"an empty manifest", "", []string{
			`edgehost.toml:1:1: app is missing (the app's name: app = "shop")`,
			`edgehost.toml:1:1: function is missing ([function.NAME] describes one function)`,
		}},
		{"an app without a name", strings.Replace(smallest, `"shop"`, `""`, 1), []string{
			`edgehost.toml:1:7: "" cannot name an app (names have 1 to 63 letters, digits, "-" and "_")`,
		}},
		{"an app without a name, in the other quotes", strings.Replace(smallest, `"shop"`, `''`, 1), []string{
			`edgehost.toml:1:7: "" cannot name an app (names have 1 to 63 letters, digits, "-" and "_")`,
		}},
		{"a namespace without a name", dependency + "namespace = ''\n", []string{
			`edgehost.toml:7:13: "" cannot name a namespace (names have 1 to 63 letters, digits, "-" and "_")`,
		}},
		{"a problem after a byte order mark", "\uFEFFapp = 3\n" + strings.TrimPrefix(smallest, "app = \"shop\"\n"), []string{
			`edgehost.toml:1:7: app must be text in quotes, not the number 3 (write app = "…")`,
		}},
		{"environment variables that cannot be", function + `env = { "" = "a", "A=B" = "c", "D\u0000" = "e", F = "g\u0000" }`, []string{
			`edgehost.toml:5:9: "" cannot name an environment variable (a name is not empty and has neither "=" nor NUL)`,
			`edgehost.toml:5:19: "A=B" cannot name an environment variable (a name is not empty and has neither "=" nor NUL)`,
			`edgehost.toml:5:32: "D\x00" cannot name an environment variable (a name is not empty and has neither "=" nor NUL)`,
			`edgehost.toml:5:53: env.F: a value cannot hold NUL`,
		}},
		{"a misspelt key", function + "timeuot = \"5s\"\n", []string{
			`edgehost.toml:5:1: unknown key timeuot (did you mean timeout?)`,
		}},
		{"an unknown key that is like no other", smallest + "[dev]\nxyzzy = 1\n", []string{
			`edgehost.toml:6:1: unknown key xyzzy (in [dev] you can use run)`,
		}},
		{"an unknown table", smallest + "[functions.hello]\n", []string{
			`edgehost.toml:5:2: unknown key functions (did you mean function?)`,
		}},
		{"a function whose keys stand in the table of all functions", "app = \"shop\"\n[function]\nmodule = \"hello.wasm\"\n", []string{
			`edgehost.toml:3:1: module is not in a table of a function (write [function.NAME] above it)`,
		}},
		{"a list of tables where a table is expected", smallest + "[[dependency]]\nurl = \"http://a\"\n", []string{
			`edgehost.toml:5:3: dependency.NAME must be a table, not a list (write [dependency.NAME] and its keys below)`,
		}},
		{"a function without module and routes", "app = \"shop\"\n[function.hello]\n", []string{
			`edgehost.toml:2:11: function.hello.module is missing (the WebAssembly file, relative to the manifest)`,
			`edgehost.toml:2:11: function.hello.routes is missing (the requests it serves, as patterns "[METHOD ][HOST]/PATH" of Go's http.ServeMux)`,
		}},
		{"no routes", "app = \"shop\"\n[function.hello]\nmodule = \"hello.wasm\"\nroutes = []\n", []string{
			`edgehost.toml:4:1: routes is empty (write routes = ["…"])`,
		}},
		{"names that cannot be keys in the store", "app = \"my shop\"\n[function.\"a/b\"]\nmodule = \"hello.wasm\"\nroutes = [\"/\"]\n", []string{
			`edgehost.toml:1:7: "my shop" cannot name an app (names have 1 to 63 letters, digits, "-" and "_")`,
			`edgehost.toml:2:11: "a/b" cannot name a function (names have 1 to 63 letters, digits, "-" and "_")`,
		}},
		{"wrong types", function + "timeout = 5\nmemory = true\ninstances = \"4\"\nsecrets = \"A\"\nenv = [1]\nobjects = [\"a/b\", 2.5]\nbuild = 1979-05-27\n", []string{
			`edgehost.toml:5:11: timeout must be text in quotes, not the number 5 (write timeout = "10s")`,
			`edgehost.toml:6:10: memory must be text in quotes, not true (write memory = "64MiB")`,
			`edgehost.toml:7:13: instances must be a whole number, not the text "4" (write instances = 32)`,
			`edgehost.toml:8:11: secrets must be a list, not the text "A" (write secrets = ["…", "…"])`,
			`edgehost.toml:9:1: function.hello.env must be a table, not a list (write [function.hello.env] and its keys below)`,
			`edgehost.toml:10:19: an element of objects must be text in quotes, not the number 2.5 (write objects = ["…", "…"])`,
			`edgehost.toml:11:9: build must be text in quotes, not a date or time (write build = "…")`,
		}},
		{"bad durations and sizes", function + "timeout = \"5 seconds\"\nqueue_wait = \"9h\"\nmemory = \"64MB\"\nmax_log = \"1.5KiB\"\nmax_header = \"1B\"\ninstances = 0\n", []string{
			`edgehost.toml:5:11: timeout: "5 seconds" is not a duration (write a number and a unit, such as "250ms", "5s" or "2m")`,
			`edgehost.toml:6:14: queue_wait: "9h" is out of bounds (allowed is 1ms to 1m)`,
			`edgehost.toml:7:10: memory: "64MB" is not a size (write a whole number and B, KiB, MiB or GiB, such as "64MiB")`,
			`edgehost.toml:8:11: max_log: "1.5KiB" is not a size (write a whole number and B, KiB, MiB or GiB, such as "64MiB")`,
			`edgehost.toml:9:14: max_header: "1B" is out of bounds (allowed is 1KiB to 1MiB)`,
			`edgehost.toml:10:13: instances: 0 is out of bounds (allowed is 1 to 1024)`,
		}},
		{"a size beyond all numbers", function + "memory = \"99999999999GiB\"\n", []string{
			`edgehost.toml:5:10: memory: "99999999999GiB" is not a size (write a whole number and B, KiB, MiB or GiB, such as "64MiB")`,
		}},
		{"keys of later versions", function + "max_late_settlement = \"5m\"\n[function.hello.idempotency]\nheader = \"Idempotency-Key\"\n[function.hello.lease]\nttl = \"8s\"\n[dependency.payments]\nurl = \"http://a\"\ncache = {}\n", []string{
			`edgehost.toml:5:1: function.hello.max_late_settlement is not supported by this version (remove it)`,
			`edgehost.toml:6:17: function.hello.idempotency is not supported by this version (remove it)`,
			`edgehost.toml:8:17: function.hello.lease is not supported by this version (remove it)`,
			`edgehost.toml:12:1: dependency.payments.cache is not supported by this version (remove it)`,
		}},
		{"an isolation that there is not", function + "isolation = \"none\"\n", []string{
			`edgehost.toml:5:13: isolation: there is no "none" (write isolation = "instance" or "request")`,
		}},
		{"dependencies that are not described", function + "dependencies = [\"payment\", \"mail\"]\n[dependency.payments]\nurl = \"http://a\"\n", []string{
			`edgehost.toml:5:17: there is no dependency "payment" (did you mean payments?)`,
			`edgehost.toml:5:28: there is no dependency "mail" (describe it: [dependency.mail] with a url)`,
		}},
		{"objects, hosts and secrets that cannot be", function + "objects = [\"guilds/\", \"a/*/b\", \"a/b*\", \"leader\", \"a/b/c\", \"*\", \"*/x\", \"*/*\"]\nallow_hosts = [\"a.example/path\", \"a.example:443\", \"http://a.example\", \"*.a.example\", \"10.0.0.1\", \"a.example:0\", \"127.1\", \"localhost\"]\nsecrets = [\"STRIPE-KEY\"]\n", []string{
			`edgehost.toml:5:12: objects: "guilds/" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:5:23: objects: "a/*/b" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:5:32: objects: "a/b*" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:5:59: objects: "*" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:5:64: objects: "*/x" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:5:71: objects: "*/*" names no lease object (write "name", "class/name", or "class/*" for all of a class)`,
			`edgehost.toml:6:16: allow_hosts: "a.example/path": an entry is a host with an optional port, without a path (write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it)`,
			`edgehost.toml:6:86: allow_hosts: "10.0.0.1": the address is private: only a dependency may name it (write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it)`,
			`edgehost.toml:6:98: allow_hosts: "a.example:0": the port is not between 1 and 65535 (write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it)`,
			`edgehost.toml:6:113: allow_hosts: "127.1": the host is neither a name in ASCII (xn--… for others) nor an address (write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it)`,
			`edgehost.toml:6:122: allow_hosts: "localhost": localhost is loopback: only a dependency may name it (write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it)`,
			`edgehost.toml:7:12: "STRIPE-KEY" cannot name a secret (write a name that can be set in a shell, such as STRIPE_KEY)`,
		}},
		{"variables without a value", function + "env = { A = \"${NOPE}-${ALSO_NOPE}\", B = \"${open\", C = \"${a b}\", D = 3 }\n", []string{
			`edgehost.toml:5:13: env.A: the environment variable NOPE is not set (set it, or give a default: ${NAME:-default})`,
			`edgehost.toml:5:13: env.A: the environment variable ALSO_NOPE is not set (set it, or give a default: ${NAME:-default})`,
			`edgehost.toml:5:41: env.B: "${" without "}" (set it, or give a default: ${NAME:-default})`,
			`edgehost.toml:5:55: env.C: ${a b} names no environment variable (set it, or give a default: ${NAME:-default})`,
			`edgehost.toml:5:69: env.D must be text in quotes, not the number 3 (write NAME = "…")`,
		}},
		{"bad route patterns", "app = \"shop\"\n[function.hello]\nmodule = \"hello.wasm\"\nroutes = [\"GET\", \"/{id\", \"/{a}/{a}\"]\n", []string{
			`edgehost.toml:4:11: routes: bad pattern "GET": at offset 0: host/path missing / (write "[METHOD ][HOST]/PATH", such as "POST /orders/{id}")`,
			`edgehost.toml:4:18: routes: bad pattern "/{id": at offset 1: bad wildcard segment (must end with '}') (write "[METHOD ][HOST]/PATH", such as "POST /orders/{id}")`,
			`edgehost.toml:4:26: routes: bad pattern "/{a}/{a}": at offset 5: duplicate wildcard name "a" (write "[METHOD ][HOST]/PATH", such as "POST /orders/{id}")`,
		}},
		{"routes that match the same requests", smallest + "[function.other]\nmodule = \"b.wasm\"\nroutes = [\"/\", \"/a/{x}/c\", \"/{y}/b/{z}\"]\n", []string{
			`edgehost.toml:7:11: routes: "/" conflicts with "/": / matches the same requests as / (the other one is on line 4, of the function hello)`,
			`edgehost.toml:7:28: routes: "/{y}/b/{z}" conflicts with "/a/{x}/c": /{y}/b/{z} and /a/{x}/c both match some paths, like "/a/b/c". But neither is more specific than the other. /{y}/b/{z} matches "/y/b/z", but /a/{x}/c doesn't. /a/{x}/c matches "/a/x/c", but /{y}/b/{z} doesn't. (the other one is on line 7, of the function other)`,
		}},
		{"modules outside the app", "app = \"shop\"\n[function.hello]\nmodule = \"../hello.wasm\"\nbuild = \" \"\nroutes = [\"/\"]\n", []string{
			`edgehost.toml:3:10: module: "../hello.wasm" is outside the app (write a path below the manifest's directory, such as "hello.wasm")`,
			`edgehost.toml:4:9: build is empty (remove it if the module is made elsewhere)`,
		}},
		{"addresses that cannot be called", smallest + "[dependency.a]\nurl = \"pay.example\"\n[dependency.b]\nurl = \"http://me:secret@pay.example\"\n[dependency.c]\nurl = \"https://pay.example/?a=b\"\n[dependency.d]\nurl = \"${NOPE}\"\n[dependency.e]\n", []string{
			`edgehost.toml:6:7: url: "pay.example": the scheme is not http or https (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:8:7: url: a URL must not carry credentials (write "http://HOST[:PORT][/PATH]" or "https://…"; passwords and keys are secrets)`,
			`edgehost.toml:10:7: url: "https://pay.example/?a=b": the URL must not have a query or fragment (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:12:7: url: the environment variable NOPE is not set (set it, or give a default: ${NAME:-default})`,
			`edgehost.toml:13:13: dependency.e.url is missing (where it is: http://HOST[:PORT][/PATH] or https://…)`,
		}},
		{"addresses that the host would not call", smallest + "[dependency.a]\nurl = \"http://127.1\"\n[dependency.b]\nurl = \"http://pay.example:0\"\n[dependency.c]\nurl = \"http://pay.example/v1/../x\"\n[dependency.d]\nurl = \"http://0.0.0.0:9090\"\n[dependency.e]\nurl = \"http://me:secret@pay.example:0\"\n", []string{
			`edgehost.toml:6:7: url: "http://127.1": the host is neither a name in ASCII (xn--… for others) nor an address (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:8:7: url: "http://pay.example:0": the port is not between 1 and 65535 (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:10:7: url: "http://pay.example/v1/../x": the path must not have the segments "." and ".." (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:12:7: url: "http://0.0.0.0:9090": the address is unspecified, not that of a server (write "http://HOST[:PORT][/PATH]" or "https://…")`,
			`edgehost.toml:14:7: url: a URL must not carry credentials (write "http://HOST[:PORT][/PATH]" or "https://…"; passwords and keys are secrets)`,
		}},
		{"addresses that no service has", dependency + "addresses = [\"10.0.0.0/8\", \"192.0.2.7\", \"10.0.0.7/8\", \"pay.example\",\n\"169.254.0.0/16\"]\n", []string{
			`edgehost.toml:7:41: addresses: "10.0.0.7/8": the range of this size begins at 10.0.0.0`,
			`edgehost.toml:7:55: addresses: "pay.example": neither an address nor a range such as "10.0.0.0/8"`,
			`edgehost.toml:8:1: addresses: "169.254.0.0/16": it is link-local, whose addresses are named one by one`,
		}},
		{"a breaker out of bounds", dependency + "breaker = { failure_threshold = 0, reset_after = \"10m\", max_reset_after = \"1m\" }\n", []string{
			`edgehost.toml:7:33: failure_threshold: 0 is out of bounds (allowed is 1 to 1000)`,
			`edgehost.toml:7:75: max_reset_after is 1m, less than the 10m of reset_after (allowed is from reset_after on)`,
		}},
		{"a recovery out of bounds", dependency + "max_in_flight = -1\nbreaker = { ramp = \"2h\", on_store_loss = \"open\", probe = \"/healthz\" }\n", []string{
			`edgehost.toml:7:17: max_in_flight: -1 is out of bounds (allowed is 0 to 1000000)`,
			`edgehost.toml:8:20: ramp: "2h" is out of bounds (allowed is 0s to 1h)`,
			`edgehost.toml:8:42: on_store_loss: there is no "open" (write on_store_loss = "local" or "hold")`,
			`edgehost.toml:8:58: probe: "/healthz": it must be GET or HEAD, a space, and a target (write probe = "GET /healthz")`,
		}},
		{"a recovery of wrong types", dependency + "max_in_flight = \"4\"\nbreaker = { ramp = 5, on_store_loss = true, probe = [1] }\n", []string{
			`edgehost.toml:7:17: max_in_flight must be a whole number, not the text "4" (write max_in_flight = 0)`,
			`edgehost.toml:8:20: ramp must be text in quotes, not the number 5 (write ramp = "0s")`,
			`edgehost.toml:8:39: on_store_loss must be text in quotes, not true (write on_store_loss = "local" or "hold")`,
			`edgehost.toml:8:45: probe must be text in quotes, not a list (write probe = "GET /healthz")`,
		}},
		{"retries out of bounds", dependency + "retry = { attempts = 0, base_delay = \"2s\", max_delay = \"1s\", budget = 2.5 }\n", []string{
			`edgehost.toml:7:22: attempts: 0 is out of bounds (allowed is 1 to 10)`,
			`edgehost.toml:7:56: max_delay is 1s, less than the 2s of base_delay (allowed is from base_delay on)`,
			`edgehost.toml:7:71: budget: 2.5 is out of bounds (allowed is above 0, at most 1)`,
		}},
		{"retries of wrong types", dependency + "retry = { budget = \"20%\" }\nexclude = [404]\nidempotency_header = true\n", []string{
			`edgehost.toml:7:20: budget must be a number, not the text "20%" (write budget = 0.2)`,
			`edgehost.toml:8:12: an element of exclude must be text in quotes, not the number 404 (write exclude = ["…", "…"])`,
			`edgehost.toml:9:22: idempotency_header must be text in quotes, not true (write idempotency_header = "Idempotency-Key")`,
		}},
		{"a budget that is not a number", dependency + "retry = { budget = nan }\n", []string{
			`edgehost.toml:7:20: budget: nan is out of bounds (allowed is above 0, at most 1)`,
		}},
		{"exclusions that are none", dependency + "exclude = [\"404\", \"7xx\"]\nidempotency_header = \"Content-Length\"\n", []string{
			`edgehost.toml:7:19: exclude: there is no "7xx" (write a status such as "404", a class such as "4xx", "connect", "reset" or "timeout")`,
			`edgehost.toml:8:22: idempotency_header: "Content-Length" cannot carry a key (write idempotency_header = "Idempotency-Key")`,
		}},
		{"keys of the other mode", dependency + "breaker = { failure_rate = 0.5, min_calls = 3 }\n[dependency.b]\nurl = \"http://b\"\nbreaker = { mode = \"rate\", failure_threshold = 5, slow_call_rate = 0.5 }\n", []string{
			`edgehost.toml:7:13: failure_rate is for mode = "rate" (remove it, or write mode = "rate")`,
			`edgehost.toml:7:33: min_calls is for mode = "rate" (remove it, or write mode = "rate")`,
			`edgehost.toml:10:28: failure_threshold is for mode = "run" (remove it, or write mode = "run")`,
			`edgehost.toml:10:51: slow_call_rate needs slow_call (write slow_call = "1s" beside it)`,
		}},
		{"a rate out of bounds", dependency + "breaker = { mode = \"share\", failure_threshold = 3 }\n[dependency.b]\nurl = \"http://b\"\nbreaker = { mode = \"rate\", failure_rate = 0, window = \"10ms\", min_calls = 0 }\n", []string{
			`edgehost.toml:7:20: mode: there is no "share" (write mode = "run" or "rate")`,
			`edgehost.toml:10:43: failure_rate: 0 is out of bounds (allowed is above 0, at most 1)`,
			`edgehost.toml:10:55: window: "10ms" is out of bounds (allowed is 1s to 1h)`,
			`edgehost.toml:10:75: min_calls: 0 is out of bounds (allowed is 1 to 1000000)`,
		}},
		{"a probe that changes something", dependency + "breaker = { probe = \"POST /healthz\" }\n", []string{
			`edgehost.toml:7:21: probe: "POST /healthz": it must be GET or HEAD, a space, and a target (write probe = "GET /healthz")`,
		}},
		{"a probe that leaves the dependency", dependency + "breaker = { probe = \"GET /../admin\" }\n", []string{
			`edgehost.toml:7:21: probe: "GET /../admin": the path must not have the segments "." and ".." (write probe = "GET /healthz")`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := manifest.Parse(manifest.FileName, []byte(test.text), environment)
			if err == nil {
				t.Fatal("Parse found no problem")
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemsCanBeTakenApart(t *testing.T) {
	_, err := manifest.Parse("shop/edgehost.toml", []byte("app = 3\nb = 4\n"), environment)
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok || len(problems) != 3 {
		t.Fatalf("Parse returned %v, want three problems", err)
	}
	first, ok := errors.AsType[manifest.Problem](err)
	if !ok || first.File != "shop/edgehost.toml" {
		t.Errorf("the first problem is %+v, want one of shop/edgehost.toml", first)
	}
}

func TestManifestIsResolved(t *testing.T) {
	text := `app = "shop"

[function.checkout]
module = "checkout.wasm"
build  = "go build -buildmode=c-shared -o checkout.wasm ."
routes = ["POST /orders/{id}", "shop.example.com/cart/"]
timeout = "1500ms"
memory = "1GiB"
instances = 0x10
env = { GREETING = "hi", PAY = "${PAYMENTS_URL}/v1", MODE = "${EMPTY:-quiet}", LITERAL = "$${PAYMENTS_URL} costs $5" }
secrets = ["STRIPE_KEY"]
dependencies = ["payments"]
objects = ["guild-settings/*"]

[dependency.payments]
url = "${PAYMENTS_URL}"
namespace = "shared"
addresses = ["10.0.0.0/8", "fd00::/8"]
max_in_flight = 8
breaker = { reset_after = "10m", ramp = "30s", on_store_loss = "hold", probe = "GET /healthz" }
retry = { attempts = 5, base_delay = "1s", budget = 1 }
exclude = ["404", "reset"]
idempotency_header = "Payment-Key"

[dependency.mail]
url = "${MAIL_URL:-http://127.0.0.1:9090}"

[dependency.search]
url = "http://search.example"
breaker = { mode = "rate", slow_call = "500ms" }

[dev]
run = ["go run ./upstream"]
`
	m, err := manifest.Parse(manifest.FileName, []byte(text), environment)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.TOML()
	if err != nil {
		t.Fatal(err)
	}
	want := `app = 'shop'

[function.checkout]
module = 'checkout.wasm'
build = 'go build -buildmode=c-shared -o checkout.wasm .'
routes = ['POST /orders/{id}', 'shop.example.com/cart/']
timeout = '1.5s'
fuel = 0
isolation = 'instance'
memory = '1GiB'
secrets = ['STRIPE_KEY']
dependencies = ['payments']
objects = ['guild-settings/*']
instances = 16
queue = 1024
queue_wait = '2s'
idle_timeout = '1m'
max_requests = 1000000
max_age = '1h'
max_request_body = '1GiB'
max_response_body = '1GiB'
max_header = '64KiB'
max_calls = 64
max_log = '256KiB'

[function.checkout.env]
GREETING = 'hi'
LITERAL = '${PAYMENTS_URL} costs $5'
MODE = 'quiet'
PAY = 'http://pay.example/v1'

[dependency.mail]
namespace = 'shop'
url = 'http://127.0.0.1:9090'
timeout = '5s'
max_in_flight = 0

[dependency.mail.breaker]
mode = 'run'
failure_threshold = 5
reset_after = '30s'
max_reset_after = '5m'
ramp = '0s'
on_store_loss = 'local'

[dependency.mail.retry]
attempts = 3
base_delay = '50ms'
max_delay = '500ms'
budget = 0.2

[dependency.payments]
namespace = 'shared'
url = 'http://pay.example'
addresses = ['10.0.0.0/8', 'fd00::/8']
timeout = '5s'
max_in_flight = 8
exclude = ['404', 'reset']
idempotency_header = 'Payment-Key'

[dependency.payments.breaker]
mode = 'run'
failure_threshold = 5
reset_after = '10m'
max_reset_after = '10m'
ramp = '30s'
on_store_loss = 'hold'
probe = 'GET /healthz'

[dependency.payments.retry]
attempts = 5
base_delay = '1s'
max_delay = '1s'
budget = 1.0

[dependency.search]
namespace = 'shop'
url = 'http://search.example'
timeout = '5s'
max_in_flight = 0

[dependency.search.breaker]
mode = 'rate'
failure_rate = 0.5
window = '10s'
min_calls = 20
slow_call = '500ms'
slow_call_rate = 1.0
reset_after = '30s'
max_reset_after = '5m'
ramp = '0s'
on_store_loss = 'local'

[dependency.search.retry]
attempts = 3
base_delay = '50ms'
max_delay = '500ms'
budget = 0.2

[dev]
run = ['go run ./upstream']
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("resolved manifest (-want +got):\n%s", diff)
	}
}

func TestResolvedManifestIsAManifest(t *testing.T) {
	first, err := manifest.Parse(manifest.FileName, []byte(smallest+"[dependency.d]\nurl = \"http://a\"\n"), environment)
	if err != nil {
		t.Fatal(err)
	}
	text, err := first.TOML()
	if err != nil {
		t.Fatal(err)
	}
	second, err := manifest.Parse(manifest.FileName, text, environment)
	if err != nil {
		t.Fatal(err)
	}
	again, err := second.TOML()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Errorf("reading the resolved manifest changed it (-first +second):\n%s", diff)
	}
}

func TestReferenceIsWrittenDown(t *testing.T) {
	const file = "../../MANIFEST.md"
	want := "# edgehost.toml\n\nAll keys, their defaults and bounds. `edgehost check` prints them as they hold for an app.\n" +
		"Durations are written like `\"250ms\"`, sizes like `\"64MiB\"`. In `url` and in the values of `env`, `${VAR}` stands for an\n" +
		"environment variable, `${VAR:-default}` gives it a default, and `$${` stands for `${`.\n\n" + manifest.Reference()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table of keys says: run go test with -update (-want +got):\n%s", file, diff)
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add(smallest)
	f.Add("a.b.c = { d = [1, {e = 2}] }\n[[x]]\n[x.y]\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = manifest.Parse(manifest.FileName, []byte(text), environment)
	})
}

func TestAByteOrderMarkIsNoPartOfTheManifest(t *testing.T) {
	m, err := manifest.Parse("edgehost.toml", []byte("\uFEFF"+smallest), environment)
	if err != nil || m.App.Value != "shop" {
		t.Errorf("got %+v, %v", m, err)
	}
}
