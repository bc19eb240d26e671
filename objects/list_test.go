package objects_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestListShowsWhatTheRecordsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kvbucket.NewMemory()
		h := openHost(t, b, objects.Config{Host: "a"})
		healthy := dependency(t, h, "stock", objects.Policy{})
		if err := call(t, healthy, objects.Success); err != nil {
			t.Fatal(err)
		}
		failing := dependency(t, h, "payments", objects.Policy{})
		open(t, failing)
		p := probe(t, failing)
		acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{Name: "b", TTL: 10 * time.Second})
		acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{Name: "a"})
		acquire(t, object(t, h, "cron.d"), objects.LeaseOptions{})
		elsewhere, err := h.Object(objects.ID{Namespace: "another", Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, elsewhere, objects.LeaseOptions{})
		pass(2 * time.Second)

		got, err := objects.List(t.Context(), b, "shop")
		if err != nil {
			t.Fatal(err)
		}
		want := []objects.Snapshot{
			{Namespace: "shop", Name: "cron.d", Leases: []objects.LeaseSnapshot{{Name: "main", TTL: 15 * time.Second, Age: 2 * time.Second}}},
			{Namespace: "shop", Name: "guild/42", Leases: []objects.LeaseSnapshot{
				{Name: "a", TTL: 15 * time.Second, Age: 2 * time.Second}, {Name: "b", TTL: 10 * time.Second, Age: 2 * time.Second},
			}},
			{Namespace: "shop", Name: "payments", Breaker: &objects.BreakerSnapshot{
				State: objects.StateHalfOpen, Generation: 2, RetryAfter: 15125*time.Millisecond - 2*time.Second, ProbeFence: p.Fence(),
			}},
			{Namespace: "shop", Name: "stock", Breaker: &objects.BreakerSnapshot{State: objects.StateClosed}},
		}
		ignore := cmp.Options{
			cmpopts.IgnoreFields(objects.Snapshot{}, "Owner", "Epoch"),
			cmpopts.IgnoreFields(objects.LeaseSnapshot{}, "Holder", "Fence"),
			cmpopts.IgnoreFields(objects.BreakerSnapshot{}, "ProbeHolder"),
			cmpopts.EquateApproxTime(0),
			cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 2*time.Millisecond }),
		}
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Error(diff)
		}
		for _, s := range got {
			if s.Owner == "" || s.Epoch != 1 {
				t.Errorf("%s is owned by %q in epoch %d", s.Name, s.Owner, s.Epoch)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
			one, err := objects.Inspect(t.Context(), b, objects.ID{Namespace: s.Namespace, Name: s.Name})
			if diff := cmp.Diff(s, one); diff != "" || err != nil {
				t.Error(diff, err)
			}
		}
		if all, err := objects.List(t.Context(), b, ""); len(all) != 5 || err != nil {
			t.Errorf("got %d objects in all namespaces, %v; want 5", len(all), err)
		}
		if _, err := objects.Inspect(t.Context(), b, objects.ID{Namespace: "shop", Name: "nothing"}); !errors.Is(err, abi.NotFound) {
			t.Errorf("got %v, want not_found", err)
		}
	})
}

func TestRecordOfANewerVersionIsNeverWrittenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		newer := []byte(`{"schema":99,"what":"no idea"}`)
		state := []byte("{\"schema\":99}\nx")
		h := openHost(t, b, objects.Config{})
		o := object(t, h, "guild/42")
		keys := map[string][]byte{"o.shop.payments": newer, "l.shop.guild.3": newer, "s.shop.guild/42.main.k": state}
		for key, value := range keys {
			if _, err := b.Memory.Update(t.Context(), key, value, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := o.Acquire(t.Context(), objects.LeaseOptions{}); !errors.Is(err, abi.Unsupported) {
			t.Errorf("acquire: got %v, want unsupported", err)
		}
		if err := third(o.Get(t.Context(), "k", nil)); !errors.Is(err, abi.Unsupported) {
			t.Errorf("get: got %v, want unsupported", err)
		}
		if err := second(o.Put(t.Context(), "k", nil, 3, nil)); !errors.Is(err, abi.Unsupported) {
			t.Errorf("put: got %v, want unsupported", err)
		}
		// Calls go on, guarded by the host alone.
		d := dependency(t, h, "payments", objects.Policy{})
		for range 5 {
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = a.Report(t.Context(), objects.Failure) // unsupported
		}
		refusal(t, call(t, d, objects.Success), abi.Deferred)
		pass(time.Minute)
		for key, want := range keys {
			if e, err := b.Memory.Get(t.Context(), key); err != nil || string(e.Value) != string(want) {
				t.Errorf("%s now holds %q, %v", key, e.Value, err)
			}
		}
		if found, err := objects.List(t.Context(), b, ""); len(found) != 0 || !errors.Is(err, abi.Unsupported) {
			t.Errorf("list: got %d objects, %v; want unsupported", len(found), err)
		}
	})
}
