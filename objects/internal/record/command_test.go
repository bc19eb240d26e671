package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsSurviveTheWayToAnotherHost(t *testing.T) {
	for _, cmd := range []Command{
		Report{Generation: 1, Failures: 2, Success: true, Host: "a", Total: 9, Policy: Policy{FailureThreshold: 5, ResetAfter: Span(time.Second)}},
		Totals{Generation: 1, Host: "a", Number: 3, Counts: Counts{Calls: 3, Failures: 2, Slow: 1}, Policy: Policy{Rate: Rate{Window: Span(time.Second), MinCalls: 1, Failures: 0.5}}},
		ClaimProbe{Op: "a-1", Holder: "h.a", TTL: time.Second},
		Settle{Generation: 1, Fence: 2, Verdict: NoVerdict},
		Withdraw{Op: "a-1"},
		Override{Op: "a-1", State: Open, Reason: "why", For: time.Second},
		Attend{},
		Acquire{Lease: "l", Op: "a-1", Attempt: 3, Holder: "h.a", TTL: time.Second},
		Renew{Lease: "l", Fence: 1, Renewal: 2},
		Release{Lease: "l", Fence: 1},
		Abandon{Lease: "l", Op: "a-1"},
	} {
		data, err := EncodeCommand(cmd)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeCommand(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cmd, got); diff != "" {
			t.Errorf("%T: %s", cmd, diff)
		}
	}
	for _, cmd := range []Command{Look{}, Resign{}} {
		if _, err := EncodeCommand(cmd); err == nil {
			t.Errorf("%T is sent to another host", cmd)
		}
	}
	for _, data := range []string{"", "{}", `{"kind":"resign","command":{}}`, `{"kind":"renew","command":[]}`} {
		if cmd, err := DecodeCommand([]byte(data)); err == nil {
			t.Errorf("%q is taken for %+v", data, cmd)
		}
	}
}

// A report that comes twice, or again with more after its answer got lost, counts
// each outcome once.
func TestRepeatedReportCountsOnce(t *testing.T) {
	p := Policy{FailureThreshold: 10, ResetAfter: Span(time.Second), MaxResetAfter: Span(time.Second)}
	report := func(host string, total uint64, success bool, failures int) Report {
		return Report{Host: host, Total: total, Success: success, Failures: failures, Policy: p}
	}
	for name, tt := range map[string]struct {
		reports []Report
		run     int
	}{
		"the same twice":                        {[]Report{report("a", 2, false, 2), report("a", 2, false, 2)}, 2},
		"again, with one more":                  {[]Report{report("a", 2, false, 2), report("a", 3, false, 3)}, 3},
		"an older one after a newer":            {[]Report{report("a", 3, false, 3), report("a", 2, false, 2)}, 3},
		"two hosts":                             {[]Report{report("a", 2, false, 2), report("b", 2, false, 2)}, 4},
		"a repeat after another host's success": {[]Report{report("a", 2, false, 2), report("b", 1, true, 0), report("a", 2, false, 2)}, 0},
		"a repeated success keeps later ones":   {[]Report{report("a", 1, true, 0), report("b", 2, false, 2), report("a", 1, true, 0)}, 2},
		"a success and a failure after it":      {[]Report{report("a", 2, false, 2), report("a", 4, true, 1)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewObject().(*Object)
			for _, r := range tt.reports {
				o.Apply(r, Now{})
			}
			if o.Breaker.Run != tt.run {
				t.Errorf("the run is %d, want %d", o.Breaker.Run, tt.run)
			}
		})
	}
}
