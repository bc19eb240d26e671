package objects

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestClosedHostAdmitsNobodyEvenIfHeWasLetInBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, _ := hangingHost(t)
		d, err := h.Dependency(ID{"shop", "payments"}, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		_ = d.look(t.Context()) // whoever found the host open goes on from here
		if _, err := d.admit(t.Context()); err == nil {
			t.Error("admitted by a closed host")
		}
		if _, err := d.admitSlowly(t.Context()); err == nil {
			t.Error("admitted by a closed host")
		}
	})
}
