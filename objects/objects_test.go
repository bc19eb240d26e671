package objects_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dependency(t testing.TB, h *objects.Host, name string, p objects.Policy) *objects.Dependency {
	t.Helper()
	d, err := h.Dependency(objects.ID{Namespace: "shop", Name: name}, p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func object(t testing.TB, h *objects.Host, name string) *objects.Object {
	t.Helper()
	o, err := h.Object(objects.ID{Namespace: "shop", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// pass lets time pass in a bubble, and everything happen that does until then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
