package objects

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
)

// An ID identifies an object in the fleet.
type ID struct {
	// Namespace is the app's name, unless apps share the object.
	Namespace string
	// Name is the dependency's name or, for an object with leases and state,
	// "class/rest": a class is a bounded kind of things, such as
	// "guild-settings", and rest one of them. A name without a slash is a class
	// of one thing.
	Name string
}

// String returns "namespace/name".
func (id ID) String() string { return id.Namespace + "/" + id.Name }

// split returns the class of a lease object, and its name within the class.
func (id ID) split() (class, rest string) {
	class, rest, _ = strings.Cut(id.Name, "/")
	return class, rest
}

func (id ID) check() error {
	if err := checkName("namespace", id.Namespace); err != nil {
		return err
	}
	return checkName("name", id.Name)
}

// checkName returns an error that unwraps to abi.Invalid unless name can name a
// thing of the given kind.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("objects: %s: empty: %w", what, abi.Invalid)
	case len(name) > abi.MaxName:
		return fmt.Errorf("objects: %s: %d bytes, at most %d: %w", what, len(name), abi.MaxName, abi.Invalid)
	case !utf8.ValidString(name):
		return fmt.Errorf("objects: %s %q: not UTF-8: %w", what, name, abi.Invalid)
	}
	return nil
}

// checkKey returns an error that unwraps to abi.Invalid if names, each good by
// itself, make a key that is too long for the store.
func checkKey(key string) error {
	if len(key) > kvbucket.MaxKey {
		return fmt.Errorf("objects: the names make a key of %d bytes, at most %d: %w", len(key), kvbucket.MaxKey, abi.Invalid)
	}
	return nil
}

// splitOwner returns the two halves of an owner.
func splitOwner(owner string) (host, incarnation string) {
	i := strings.LastIndexByte(owner, '.')
	return owner[:max(i, 0)], owner[i+1:]
}

// incarnationOf returns what tells an owner from all others.
func incarnationOf(owner string) string {
	_, incarnation := splitOwner(owner)
	return incarnation
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("objects: "+format+": %w", append(args, abi.Invalid)...)
}
