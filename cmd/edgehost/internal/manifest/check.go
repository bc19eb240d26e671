package manifest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgehost/edgehost/runtime/egress"
)

// checkFunctions reports what the table of keys cannot know: what a value means
// beside the others.
func (d *decoder) checkFunctions(m *Manifest) {
	if m.App.At != (Position{}) && !isName(m.App.Value) {
		d.report(m.App.At, nameHint, "%q cannot name an app", m.App.Value)
	}
	known := make([]string, len(m.Dependencies))
	for i, dep := range m.Dependencies {
		known[i] = dep.Name.Value
	}
	for i := range m.Functions {
		f := &m.Functions[i]
		d.checkModule(f)
		d.checkUses(f, known)
		for _, secret := range f.Secrets {
			if !isVariableName(secret.Value) {
				d.report(secret.At, "write a name that can be set in a shell, such as STRIPE_KEY", "%q cannot name a secret", secret.Value)
			}
		}
	}
}

func (d *decoder) checkModule(f *Function) {
	if f.Module.At == (Position{}) {
		return
	}
	if !filepath.IsLocal(f.Module.Value) {
		d.report(f.Module.At, "write a path below the manifest's directory, such as \"hello.wasm\"", "module: %q is outside the app", f.Module.Value)
	}
	if strings.TrimSpace(f.Build.Value) == "" && f.Build.At != (Position{}) {
		d.report(f.Build.At, "remove it if the module is made elsewhere", "build is empty")
	}
}

// checkUses reports what a function wants to use and cannot.
func (d *decoder) checkUses(f *Function, known []string) {
	for _, name := range f.Dependencies {
		if !slices.Contains(known, name.Value) {
			d.report(name.At, dependencyHint(name.Value, known), "there is no dependency %q", name.Value)
		}
	}
	for _, object := range f.Objects {
		class, rest, hasRest := strings.Cut(object.Value, "/")
		if !isName(class) || hasRest && rest == "" || rest != "*" && strings.Contains(rest, "*") {
			d.report(object.At, "write \"name\", \"class/name\", or \"class/*\" for all of a class", "objects: %q names no lease object", object.Value)
		}
	}
	for _, host := range f.AllowHosts {
		if err := egress.CheckAllowedHost(host.Value); err != nil {
			d.report(host.At, `write "HOST[:PORT]" for https, or "http://HOST[:PORT]"; "*.HOST" is all names below it`, "allow_hosts: %q: %v", host.Value, err)
		}
	}
}

func dependencyHint(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "describe it: [dependency." + quoteKey(name) + "] with a url"
}

// A registered route was accepted and can conflict with later ones.
type registered struct {
	pattern  Text
	function string
}

// checkRoutes reports patterns that [http.ServeMux] refuses, and pairs of them
// that match the same requests.
func (d *decoder) checkRoutes(m *Manifest) {
	var accepted []registered
	for _, f := range m.Functions {
		for _, route := range f.Routes {
			if reason := refused(route.Value); reason != "" {
				d.report(route.At, `write "[METHOD ][HOST]/PATH", such as "POST /orders/{id}"`, "routes: bad pattern %q: %s", route.Value, reason)
				continue
			}
			for _, other := range accepted {
				if reason := refused(other.pattern.Value, route.Value); reason != "" {
					d.report(route.At, fmt.Sprintf("the other one is on line %d, of the function %s", other.pattern.At.Line, other.function),
						"routes: %q conflicts with %q: %s", route.Value, other.pattern.Value, reason)
				}
			}
			accepted = append(accepted, registered{route, f.Name.Value})
		}
	}
}

// refused returns why a ServeMux does not take these patterns together, or "".
func refused(patterns ...string) (reason string) {
	defer func() {
		if r := recover(); r != nil {
			reason = muxReason(fmt.Sprint(r))
		}
	}()
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return ""
}

// muxReason shortens what a ServeMux says. It begins with the pattern, or with
// the places in the program where two were registered: the author of a manifest
// knows the one and cannot use the other.
func muxReason(message string) string {
	if _, conflict, ok := strings.Cut(message, "\n"); ok {
		return strings.Join(strings.Fields(conflict), " ")
	}
	if _, syntax, ok := strings.Cut(message, ": "); ok {
		return syntax
	}
	return message
}

func (d *decoder) checkDependencies(m *Manifest) {
	for i := range m.Dependencies {
		dep := &m.Dependencies[i]
		if dep.Namespace.At == (Position{}) {
			dep.Namespace.Value = m.App.Value
		} else if !isName(dep.Namespace.Value) {
			d.report(dep.Namespace.At, nameHint, "%q cannot name a namespace", dep.Namespace.Value)
		}
		d.checkURL(dep)
		for _, entry := range dep.Addresses {
			if err := egress.CheckAddresses(entry.Value); err != nil {
				d.report(entry.At, "", "addresses: %q: %v", entry.Value, err)
			}
		}
	}
}

func (d *decoder) checkURL(dep *Dependency) {
	if dep.URL.At == (Position{}) {
		return
	}
	before := len(d.problems)
	dep.URL = d.expand("url", dep.URL)
	if len(d.problems) > before {
		return
	}
	const hint = `write "http://HOST[:PORT][/PATH]" or "https://…"`
	switch err := egress.CheckURL(dep.URL.Value); {
	case err == nil:
	case strings.Contains(dep.URL.Value, "@"): // what is before it may be a password
		d.report(dep.URL.At, hint+"; passwords and keys are secrets", "url: %v", err)
	default:
		d.report(dep.URL.At, hint, "url: %q: %v", dep.URL.Value, err)
	}
}
