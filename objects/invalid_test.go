package objects_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestInvalidUse(t *testing.T) {
	h := openHost(t, kvbucket.NewMemory(), objects.Config{})
	o := object(t, h, "guild/42")
	l := acquire(t, o, objects.LeaseOptions{})
	long := strings.Repeat("n", abi.MaxName+1)
	wide := strings.Repeat("~", abi.MaxName) // three bytes each in a key
	dependency := func(id objects.ID, p objects.Policy) error { return second(h.Dependency(id, p)) }
	object := func(namespace, name string) error {
		return second(h.Object(objects.ID{Namespace: namespace, Name: name}))
	}
	lease := func(opts objects.LeaseOptions) error { return second(o.Acquire(t.Context(), opts)) }
	good := objects.ID{Namespace: "shop", Name: "payments"}
	tests := map[string]error{
		"no bucket":                     second(objects.Open(t.Context(), objects.Config{})),
		"a host name that is too long":  second(objects.Open(t.Context(), objects.Config{Bucket: kvbucket.NewMemory(), Host: long})),
		"no namespace":                  object("", "x"),
		"no name":                       object("shop", ""),
		"no class":                      object("shop", "/x"),
		"a name that is too long":       object("shop", long),
		"a name that is no text":        object("shop", "\xff"),
		"a key that is too long":        object(wide, wide),
		"no dependency":                 dependency(objects.ID{}, objects.Policy{}),
		"a negative threshold":          dependency(good, objects.Policy{FailureThreshold: -1}),
		"a negative time":               dependency(good, objects.Policy{Timeout: -1}),
		"a bound below the first delay": dependency(good, objects.Policy{ResetAfter: 2, MaxResetAfter: 1}),
		"a short ttl":                   lease(objects.LeaseOptions{TTL: time.Millisecond}),
		"a long ttl":                    lease(objects.LeaseOptions{TTL: 25 * time.Hour}),
		"renewals without a pause":      lease(objects.LeaseOptions{RenewEvery: 1}),
		"renewals that are too rare":    lease(objects.LeaseOptions{TTL: time.Second, RenewEvery: time.Second}),
		"a negative wait":               lease(objects.LeaseOptions{Wait: -1}),
		"a lease name that is too long": lease(objects.LeaseOptions{Name: long}),
		"no state key":                  third(o.Get(t.Context(), "", nil)),
		"a lease of another object": func() error {
			other, err := h.Object(objects.ID{Namespace: "shop", Name: "guild/43"})
			if err != nil {
				return err
			}
			return third(other.Get(t.Context(), "k", l))
		}(),
	}
	for name, err := range tests {
		if !errors.Is(err, abi.Invalid) || !strings.HasPrefix(fmt.Sprint(err), "objects: ") {
			t.Errorf("%s: got %v, want an error of this package that is invalid", name, err)
		}
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }
