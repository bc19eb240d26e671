//go:build !wasip1

package edge_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

const settings = edge.Object("guild-settings/42")

// inObject runs f in a host that lets it use the settings.
func inObject(t *testing.T, f func(host *edgetest.Host)) {
	t.Helper()
	host := edgetest.New(t)
	host.AllowObjects("guild-settings/*")
	host.Run(func() { f(host) })
}

func acquire(t *testing.T, options edge.LeaseOptions) *edge.Lease {
	t.Helper()
	lease, err := settings.Acquire(options)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestLease(t *testing.T) {
	t.Parallel()
	t.Run("fences grow with every grant", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(*edgetest.Host) {
			var last uint64
			for range 3 {
				lease := acquire(t, edge.LeaseOptions{TTL: 15 * time.Second, RenewEvery: 5 * time.Second, Wait: time.Second})
				if lease.Fence() <= last || lease.Err() != nil || lease.Remaining() <= 0 {
					t.Errorf("fence %d after %d, %v, %v", lease.Fence(), last, lease.Err(), lease.Remaining())
				}
				last = lease.Fence()
				if err := errors.Join(lease.Release(), lease.Release()); err != nil {
					t.Error(err)
				}
				if !errors.Is(lease.Err(), edge.LeaseLost) || lease.Remaining() != 0 {
					t.Errorf("after the release: %v, %v", lease.Err(), lease.Remaining())
				}
			}
		})
	})
	t.Run("a lease in use is busy under each of its names", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			acquire(t, edge.LeaseOptions{})
			host.HoldLease(string(settings), "audit", 3*time.Second)
			acquire(t, edge.LeaseOptions{Name: "other"})
			if _, err := settings.Acquire(edge.LeaseOptions{Name: "main"}); !errors.Is(err, edge.LeaseBusy) || edge.RetryAfter(err) <= 0 {
				t.Errorf("main: %v", err)
			}
			if _, err := settings.Acquire(edge.LeaseOptions{Name: "audit"}); !errors.Is(err, edge.LeaseBusy) || edge.RetryAfter(err) != 3*time.Second {
				t.Errorf("audit: %v", err)
			}
		})
	})
	t.Run("a lost lease stays lost", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			lost := acquire(t, edge.LeaseOptions{})
			host.LoseLease(string(settings), "main")
			next := acquire(t, edge.LeaseOptions{})
			if !errors.Is(lost.Err(), edge.LeaseLost) || lost.Remaining() != 0 || !errors.Is(lost.Release(), edge.LeaseLost) {
				t.Errorf("the lost lease: %v", lost.Err())
			}
			if next.Err() != nil || next.Fence() <= lost.Fence() {
				t.Errorf("the next lease: %v", next.Err())
			}
		})
	})
	t.Run("the end of the request releases it", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		host.AllowObjects("guild-settings/*")
		for range 2 {
			host.Run(func() { acquire(t, edge.LeaseOptions{}) })
		}
	})
	t.Run("an object that the manifest does not list is denied", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(*edgetest.Host) {
			if _, err := edge.Object("accounts/1").Acquire(edge.LeaseOptions{}); !errors.Is(err, edge.Denied) {
				t.Errorf("lease: %v", err)
			}
			if _, _, err := edge.Object("accounts/1").Get("k", nil); !errors.Is(err, edge.Denied) {
				t.Errorf("state: %v", err)
			}
		})
	})
}

func TestFunctionLease(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.AllowObjects("guild-settings/*")
	var last uint64
	host.Handle("/", func(w *edge.ResponseWriter, _ *edge.Request) {
		lease, err := edge.FunctionLease()
		if err != nil {
			edge.Error(w, err)
			return
		}
		if lease.Fence() <= last {
			t.Errorf("fence %d after %d", lease.Fence(), last)
		}
		last = lease.Fence()
		_, rev, _ := settings.Get("k", lease)
		if _, err := settings.Put("k", []byte("v"), rev, lease); err != nil {
			t.Error(err)
		}
		if err := lease.Release(); !errors.Is(err, edge.Invalid) || lease.Err() != nil {
			t.Errorf("release %v, then %v", err, lease.Err())
		}
	})
	get := func() *edgetest.Response { return host.Serve(httptest.NewRequest(http.MethodGet, "/", http.NoBody)) }
	if got := get(); got.Code != edge.NotFound {
		t.Errorf("without a lease: %+v", got)
	}
	host.FunctionLease(string(settings), "main")
	for range 2 {
		if got := get(); got.Status != 200 {
			t.Errorf("with a lease: %+v", got)
		}
	}
	host.HoldLease(string(settings), "main", 2*time.Second)
	if got := get(); got.Code != edge.LeaseBusy || got.Header.Get("Retry-After") != "2" {
		t.Errorf("while somebody else has it: %+v", got)
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	t.Run("it is created, read and replaced by revision", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			if _, rev, err := settings.Get("k", nil); !errors.Is(err, edge.NotFound) || rev != 0 {
				t.Fatalf("an absent key: revision %d, %v", rev, err)
			}
			long := strings.Repeat("v", 40<<10)
			first, err := settings.Put("k", []byte(long), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			value, rev, err := settings.Get("k", nil)
			if err != nil || string(value) != long || rev != first {
				t.Errorf("got %d bytes, revision %d, %v", len(value), rev, err)
			}
			second, err := settings.Put("k", nil, first, nil)
			if err != nil || second <= first {
				t.Errorf("revision %d after %d, %v", second, first, err)
			}
			if value, ok := host.State(string(settings), "k"); !ok || len(value) != 0 {
				t.Errorf("an empty value: %q, %v", value, ok)
			}
			if value, _, err := settings.Get("k", nil); err != nil || len(value) != 0 {
				t.Errorf("an empty value: %q, %v", value, err)
			}
		})
	})
	t.Run("a conflict tells the revision", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			theirs := host.SetState(string(settings), "k", []byte("theirs"))
			_, err := settings.Put("k", []byte("mine"), 0, nil)
			if !errors.Is(err, edge.Conflict) || edge.CurrentRevision(err) != theirs {
				t.Errorf("got %v with revision %d", err, edge.CurrentRevision(err))
			}
			if value, _ := host.State(string(settings), "k"); string(value) != "theirs" {
				t.Errorf("the value is %q", value)
			}
		})
	})
	t.Run("a value that is too large is refused", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(*edgetest.Host) {
			if _, err := settings.Put("k", make([]byte, 48<<10+1), 0, nil); !errors.Is(err, edge.TooLarge) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("a key name has 1 to 256 bytes", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(*edgetest.Host) {
			for _, key := range []string{"", strings.Repeat("k", 257)} {
				if _, _, err := settings.Get(key, nil); !errors.Is(err, edge.Invalid) {
					t.Errorf("got %v", err)
				}
			}
		})
	})
	t.Run("a late holder is fenced out", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			late := acquire(t, edge.LeaseOptions{})
			_, lateRev, err := settings.Get("k", late)
			if !errors.Is(err, edge.NotFound) || lateRev == 0 {
				t.Fatalf("revision %d, %v", lateRev, err)
			}
			host.LoseLease(string(settings), "main")
			if _, err := settings.Put("k", []byte("late"), lateRev, late); !errors.Is(err, edge.LeaseLost) {
				t.Errorf("the late holder: %v", err)
			}
			now := acquire(t, edge.LeaseOptions{})
			if _, err := settings.Put("k", []byte("x"), lateRev, now); !errors.Is(err, edge.Fenced) && !errors.Is(err, edge.Conflict) {
				t.Errorf("put without a get: %v", err)
			}
			_, rev, _ := settings.Get("k", now)
			if _, err := settings.Put("k", []byte("now"), rev, now); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("leases of another name have other keys", func(t *testing.T) {
		t.Parallel()
		inObject(t, func(host *edgetest.Host) {
			host.SetState(string(settings), "k", []byte("main"))
			other := acquire(t, edge.LeaseOptions{Name: "other"})
			if _, _, err := settings.Get("k", other); !errors.Is(err, edge.NotFound) {
				t.Errorf("got %v", err)
			}
			if _, _, err := edge.Object("guild-settings/7").Get("k", other); !errors.Is(err, edge.Invalid) {
				t.Errorf("a lease of another object: %v", err)
			}
		})
	})
}

func TestDurationsBelowZeroAreInvalid(t *testing.T) {
	t.Parallel()
	inObject(t, func(*edgetest.Host) {
		for name, options := range map[string]edge.LeaseOptions{
			"ttl":     {TTL: -time.Second},
			"renewal": {RenewEvery: -1},
			"wait":    {Wait: -time.Hour},
		} {
			if _, err := settings.Acquire(options); !errors.Is(err, edge.Invalid) {
				t.Errorf("%s: %v, want Invalid", name, err)
			}
		}
		request, err := edge.NewRequest("GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Timeout = -1
		if _, err := edge.Fetch(request); !errors.Is(err, edge.Invalid) {
			t.Errorf("timeout: %v, want Invalid", err)
		}
	})
}
