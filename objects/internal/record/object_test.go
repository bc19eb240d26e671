package record

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgehost/edgehost/guests/abi"
)

var policy = Policy{FailureThreshold: 3, ResetAfter: Span(30 * time.Second), MaxResetAfter: Span(100 * time.Second)}

// at returns a moment d after the owner's start, without jitter.
func at(d time.Duration) Now { return Now{Mono: d} }

// do applies commands one after another, each at the same moment and committed,
// and returns the last answer.
func do(t *testing.T, r Record, now Now, cmds ...Command) (a Answer) {
	t.Helper()
	for _, cmd := range cmds {
		r.Tick(now)
		a, _ = r.Apply(cmd, now)
		r.Commit(now)
	}
	return a
}

// In the tests a breaker reaches each state the same way, at the same moments.
const (
	openedAt = 10 * time.Second
	probedAt = openedAt + 30*time.Second
	probeTTL = 10 * time.Second
)

func closedObject(t *testing.T, failures int) *Object {
	t.Helper()
	o := NewObject().(*Object)
	if failures > 0 {
		do(t, o, at(0), Report{Failures: failures, Policy: policy})
	}
	return o
}

func openObject(t *testing.T) *Object {
	t.Helper()
	o := closedObject(t, 0)
	do(t, o, at(openedAt), Report{Failures: 3, Policy: policy})
	return o
}

func claim(op string) ClaimProbe {
	return ClaimProbe{Op: op, Holder: "host", TTL: probeTTL, Policy: policy}
}

func halfOpenObject(t *testing.T) (*Object, Answer) {
	t.Helper()
	o := openObject(t)
	return o, do(t, o, at(probedAt), claim("first"))
}

func TestReportsOfClosedBreaker(t *testing.T) {
	tests := map[string]struct {
		before  int
		report  Report
		state   string
		run     int
		changed bool
	}{
		"a failure is counted":                                      {0, Report{Failures: 1}, Closed, 1, true},
		"failures add up to the threshold and open it":              {2, Report{Failures: 1}, Open, 0, true},
		"one report with enough failures opens it":                  {0, Report{Failures: 3}, Open, 0, true},
		"a success ends the run":                                    {2, Report{Success: true}, Closed, 0, true},
		"a success ends the run before the failures that follow it": {2, Report{Success: true, Failures: 2}, Closed, 2, false},
		"failures after a success still open it if they are enough": {1, Report{Success: true, Failures: 3}, Open, 0, true},
		"a success without a run changes nothing":                   {0, Report{Success: true}, Closed, 0, false},
		"a report of another generation changes nothing":            {2, Report{Generation: 1, Failures: 3}, Closed, 2, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := closedObject(t, tt.before)
			tt.report.Policy = policy
			_, changed := o.Apply(tt.report, at(0))
			if o.Breaker.State != tt.state || o.Breaker.Run != tt.run || changed != tt.changed {
				t.Errorf("got %s, run %d, changed %t; want %s, run %d, changed %t",
					o.Breaker.State, o.Breaker.Run, changed, tt.state, tt.run, tt.changed)
			}
		})
	}
}

// Every pair of a state and an outcome, so that none closes what it should open.
func TestEveryStateAndOutcome(t *testing.T) {
	closed := func(t *testing.T) (*Object, Answer) {
		t.Helper()
		return closedObject(t, 2), Answer{}
	}
	open := func(t *testing.T) (*Object, Answer) {
		t.Helper()
		return openObject(t), Answer{Generation: 1, Fence: 1}
	}
	half := halfOpenObject
	stale := func(t *testing.T) (*Object, Answer) {
		t.Helper()
		o, a := halfOpenObject(t)
		a.Fence--
		return o, a
	}
	returned := func(t *testing.T) (*Object, Answer) {
		t.Helper()
		o, a := halfOpenObject(t)
		do(t, o, at(probedAt), Withdraw{Op: "first"})
		return o, a
	}
	tests := map[string]struct {
		from    func(*testing.T) (*Object, Answer)
		verdict Verdict
		state   string
		code    abi.Code
	}{
		"closed, success":                        {closed, Success, Closed, abi.Fenced},
		"closed, failure":                        {closed, Failure, Closed, abi.Fenced},
		"closed, no verdict":                     {closed, NoVerdict, Closed, abi.Fenced},
		"open, success":                          {open, Success, Open, abi.Fenced},
		"open, failure":                          {open, Failure, Open, abi.Fenced},
		"open, no verdict":                       {open, NoVerdict, Open, abi.Fenced},
		"half-open, success of the probe":        {half, Success, Closed, 0},
		"half-open, failure of the probe":        {half, Failure, Open, 0},
		"half-open, no verdict of the probe":     {half, NoVerdict, HalfOpen, 0},
		"half-open, success of another fence":    {stale, Success, HalfOpen, abi.Fenced},
		"half-open, failure of another fence":    {stale, Failure, HalfOpen, abi.Fenced},
		"half-open, no verdict of another fence": {stale, NoVerdict, HalfOpen, abi.Fenced},
		"half-open without probe, success":       {returned, Success, HalfOpen, abi.Fenced},
		"half-open without probe, failure":       {returned, Failure, HalfOpen, abi.Fenced},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, admitted := tt.from(t)
			// No probe has fence 1 yet, so a settled fence cannot be meant.
			cmd := Settle{Generation: admitted.Generation, Fence: admitted.Fence, Verdict: tt.verdict, Policy: policy}
			if cmd.Fence == 0 {
				cmd.Fence = 7
			}
			a := do(t, o, at(probedAt+time.Second), cmd)
			if o.Breaker.State != tt.state || a.Code != tt.code {
				t.Errorf("got %s and %v, want %s and %v", o.Breaker.State, a.Code, tt.state, tt.code)
			}
		})
	}
}

func TestCallsOfClosedBreakerSayNothingLater(t *testing.T) {
	for _, late := range []Report{{Failures: 9}, {Success: true}, {Generation: 1, Success: true}, {Generation: 2, Failures: 9}} {
		o, _ := halfOpenObject(t)
		late.Policy = policy
		before := *o
		if _, changed := o.Apply(late, at(probedAt)); changed {
			t.Errorf("%+v changed a half-open breaker: %s", late, cmp.Diff(before, *o, cmpopts.IgnoreUnexported(Object{}, Header{}, Clock{})))
		}
	}
}

func TestOneProbeAtATime(t *testing.T) {
	o := openObject(t)
	if a := do(t, o, at(probedAt-time.Second), claim("early")); a.Code != abi.BreakerOpen || a.RetryAfter != time.Second {
		t.Errorf("before the cooldown's end: got %v, retry after %v; want breaker_open, 1s", a.Code, a.RetryAfter)
	}
	first := do(t, o, at(probedAt), claim("first"))
	if first.Code != 0 || first.Fence == 0 {
		t.Fatalf("at the cooldown's end: got %+v, want a grant", first)
	}
	if again := do(t, o, at(probedAt), claim("first")); again != first {
		t.Errorf("the same operation again: got %+v, want %+v", again, first)
	}
	if a := do(t, o, at(probedAt), claim("second")); a.Code != abi.Deferred || a.RetryAfter <= 0 {
		t.Errorf("another operation: got %v, retry after %v; want deferred and above zero", a.Code, a.RetryAfter)
	}
}

func TestCooldownDoublesUpToItsBound(t *testing.T) {
	o := openObject(t)
	now := openedAt
	var got []time.Duration
	for i := range 4 {
		cooldown := time.Duration(o.Breaker.Cooldown)
		got = append(got, cooldown)
		now += cooldown
		a := do(t, o, at(now), claim(string(rune('a'+i))))
		do(t, o, at(now), Settle{Generation: a.Generation, Fence: a.Fence, Verdict: Failure, Policy: policy})
	}
	want := []time.Duration{30 * time.Second, 60 * time.Second, 100 * time.Second, 100 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	now += time.Duration(o.Breaker.Cooldown)
	a := do(t, o, at(now), claim("last"))
	do(t, o, at(now), Settle{Generation: a.Generation, Fence: a.Fence, Verdict: Success, Policy: policy})
	do(t, o, at(now), Report{Generation: o.Breaker.Generation, Failures: 3, Policy: policy})
	if got := time.Duration(o.Breaker.Cooldown); got != 30*time.Second {
		t.Errorf("after it was closed, the next cooldown is %v, want 30s", got)
	}
}

func TestCooldownIsJittered(t *testing.T) {
	o := closedObject(t, 0)
	do(t, o, Now{Jitter: 0.5}, Report{Failures: 3, Policy: policy})
	if got, want := time.Duration(o.Breaker.Cooldown), 33750*time.Millisecond; got != want {
		t.Errorf("got a cooldown of %v, want %v", got, want)
	}
}

func TestProbeThatLapsesReopensForLonger(t *testing.T) {
	o, old := halfOpenObject(t)
	lapse := probedAt + probeTTL*11/10
	if o.Tick(at(lapse - 1)); o.Breaker.State != HalfOpen {
		t.Fatalf("before 1.1 ttl: got %s, want half_open", o.Breaker.State)
	}
	if o.Tick(at(lapse)); o.Breaker.State != Open || o.Breaker.Cooldown != 2*policy.ResetAfter {
		t.Fatalf("at 1.1 ttl: got %s for %v, want open for 1m0s", o.Breaker.State, time.Duration(o.Breaker.Cooldown))
	}
	o.Commit(at(lapse))
	fresh := do(t, o, at(lapse+time.Minute), claim("second"))
	if fresh.Fence <= old.Fence {
		t.Fatalf("the second probe's fence %d is not above the first one's %d", fresh.Fence, old.Fence)
	}
	for _, v := range []Verdict{Success, Failure, NoVerdict} {
		a := do(t, o, at(lapse+time.Minute), Settle{Generation: old.Generation, Fence: old.Fence, Verdict: v, Policy: policy})
		if a.Code != abi.Fenced || o.Breaker.State != HalfOpen || o.Probe == nil {
			t.Errorf("verdict %v of the old probe: got %v, breaker %s", v, a.Code, o.Breaker.State)
		}
	}
}

func TestThirdProbeWithoutVerdictCountsAsFailure(t *testing.T) {
	o := openObject(t)
	for i := range 3 {
		if o.Breaker.State == Open && i > 0 {
			t.Fatalf("open after %d probes without a verdict", i)
		}
		a := do(t, o, at(probedAt), claim(string(rune('a'+i))))
		if a.Code != 0 || a.Fence == 0 {
			t.Fatalf("probe %d: got %+v, want a grant", i, a)
		}
		do(t, o, at(probedAt), Settle{Generation: a.Generation, Fence: a.Fence, Verdict: NoVerdict, Policy: policy})
	}
	if o.Breaker.State != Open || o.Breaker.Cooldown != 2*policy.ResetAfter {
		t.Errorf("got %s for %v, want open for twice the first cooldown", o.Breaker.State, time.Duration(o.Breaker.Cooldown))
	}
}

func TestWithdrawnProbeIsNoVerdict(t *testing.T) {
	o := openObject(t)
	for i := range 2 * maxReturned {
		op := string(rune('a' + i))
		do(t, o, at(probedAt), claim(op), Withdraw{Op: "another"})
		if o.Probe == nil {
			t.Fatal("another operation has withdrawn the probe")
		}
		do(t, o, at(probedAt), Withdraw{Op: op})
	}
	if o.Breaker.State != HalfOpen || o.Probe != nil {
		t.Errorf("got %s, want half_open without a probe", o.Breaker.State)
	}
}

func TestVerdictSentTwiceIsTakenOnce(t *testing.T) {
	o, a := halfOpenObject(t)
	verdict := Settle{Generation: a.Generation, Fence: a.Fence, Verdict: Success, Policy: policy}
	do(t, o, at(probedAt), verdict)
	before := o.Breaker.Generation
	again, changed := o.Apply(verdict, at(probedAt))
	if again.Code != 0 || changed || o.Breaker.Generation != before {
		t.Errorf("got %v, changed %t; want the first answer and no change", again.Code, changed)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	newer := []byte(`{"schema":2,"breaker":{"state":"closed"},"leases":{}}`)
	if _, err := DecodeObject(newer, at(0)); !errors.Is(err, ErrSchema) {
		t.Errorf("object: got %v, want ErrSchema", err)
	}
	if _, err := DecodePage(newer, at(0)); !errors.Is(err, ErrSchema) {
		t.Errorf("page: got %v, want ErrSchema", err)
	}
	if _, err := DecodeState([]byte("{\"schema\":2}\nx")); !errors.Is(err, ErrSchema) {
		t.Errorf("state: got %v, want ErrSchema", err)
	}
}

func TestObjectSurvivesItsStorage(t *testing.T) {
	o, _ := halfOpenObject(t)
	o.Claim("host.1", at(0))
	o.Stamp("c1")
	data, err := o.Encode(at(probedAt + time.Second))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeObject(data, at(0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o, got, cmpopts.IgnoreUnexported(Object{}, Header{}, Clock{})); diff != "" {
		t.Error(diff)
	}
	if left, want := got.(*Object).Remaining(at(0)), probeTTL*11/10-time.Second; left != want {
		t.Errorf("the probe has %v left after it was read, want %v", left, want)
	}
}
