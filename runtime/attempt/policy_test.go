package attempt_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

// answered is the result of an attempt with the fields of its answer in pairs.
func answered(status int, fields ...string) attempt.Result {
	header := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		header.Set(fields[i], fields[i+1])
	}
	return attempt.Result{Response: &http.Response{StatusCode: status, Header: header, Body: http.NoBody}}
}

func failed(kind egress.Kind) attempt.Result {
	return attempt.Result{Err: &egress.Error{Kind: kind, Err: errors.New("why")}}
}

func resolved(tb testing.TB, p attempt.Policy) attempt.Policy {
	tb.Helper()
	p, err := p.Resolve()
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestOnlyTheClosedListIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		result     attempt.Result
		unsafe     string // the reason, of a call that must not have its effect twice
		idempotent string // of one that may
	}{
		"no connection":               {failed(egress.Connect), "connect", "connect"},
		"a reset before a byte":       {failed(egress.BeforeWrite), "unsent", "unsent"},
		"a reset after a byte":        {failed(egress.AfterWrite), "", "reset"},
		"a timeout":                   {failed(egress.Timeout), "", ""},
		"a cancellation":              {failed(egress.Canceled), "", ""},
		"a malformed request":         {failed(egress.Invalid), "", ""},
		"a denied target":             {failed(egress.Denied), "", ""},
		"a lost lease":                {attempt.Result{Err: abi.LeaseLost}, "", ""},
		"a stale fence":               {attempt.Result{Err: abi.Fenced}, "", ""},
		"a conflict":                  {attempt.Result{Err: abi.Conflict}, "", ""},
		"a lost reservation":          {attempt.Result{Err: abi.ReservationLost}, "", ""},
		"an open breaker":             {attempt.Result{Err: &objects.Refusal{Code: abi.BreakerOpen}}, "", ""},
		"200":                         {answered(200), "", ""},
		"400, validation":             {answered(400), "", ""},
		"401, authorization":          {answered(401), "", ""},
		"403, authorization":          {answered(403), "", ""},
		"404":                         {answered(404), "", ""},
		"408":                         {answered(408), "", ""},
		"409, a conflict":             {answered(409), "", ""},
		"412, a revision conflict":    {answered(412), "", ""},
		"422, validation":             {answered(422), "", ""},
		"429":                         {answered(429), "429", "429"},
		"500":                         {answered(500), "", ""},
		"501":                         {answered(501), "", ""},
		"502":                         {answered(502), "", "502"},
		"503":                         {answered(503), "503", "503"},
		"504":                         {answered(504), "", "504"},
		"a probe, which is made once": {attempt.Result{Response: answered(503).Response, Probe: true}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for idempotent, want := range map[bool]string{false: tc.unsafe, true: tc.idempotent} {
				got := resolved(t, attempt.Policy{}).Decide(attempt.Situation{
					Result: tc.result, Number: 1, Idempotent: idempotent, Timeout: time.Second, Left: time.Minute,
				})
				if got.Retry != (want != "") || got.Retry && got.Reason != want {
					t.Errorf("idempotent %v: got %+v, want the reason %q", idempotent, got, want)
				}
			}
		})
	}
}

func TestAnAttemptThatMayNotBeMadeIsNot(t *testing.T) {
	date := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	busy := func(fields ...string) attempt.Result { return answered(503, fields...) }
	slow := busy()
	slow.Took = 900 * time.Millisecond
	for name, tc := range map[string]struct {
		s    attempt.Situation
		want attempt.Decision
	}{
		"the first retry": {attempt.Situation{Result: busy(), Number: 1}, attempt.Decision{Retry: true, Delay: 25 * time.Millisecond, Reason: "503"}},
		"the second waits up to twice as long": {
			attempt.Situation{Result: busy(), Number: 2},
			attempt.Decision{Retry: true, Delay: 50 * time.Millisecond, Reason: "503"},
		},
		"there is no fourth attempt": {attempt.Situation{Result: busy(), Number: 4}, attempt.Decision{Reason: "attempts"}},
		"an open breaker":            {attempt.Situation{Result: busy(), Number: 1, Open: true}, attempt.Decision{Reason: "open"}},
		"a streamed body":            {attempt.Situation{Result: busy(), Number: 1, Once: true}, attempt.Decision{Reason: "body"}},
		"less time than half of an attempt's": {
			attempt.Situation{Result: busy(), Number: 1, Left: 524 * time.Millisecond},
			attempt.Decision{Reason: "deadline"},
		},
		"just half of it": {
			attempt.Situation{Result: busy(), Number: 1, Left: 525 * time.Millisecond},
			attempt.Decision{Retry: true, Delay: 25 * time.Millisecond, Reason: "503"},
		},
		"less time than the attempt before took": {
			attempt.Situation{Result: slow, Number: 1, Left: 900 * time.Millisecond},
			attempt.Decision{Reason: "deadline"},
		},
		"a deadline that is over": {attempt.Situation{Result: busy(), Number: 1, Left: -time.Second}, attempt.Decision{Reason: "deadline"}},
		"Retry-After in seconds is a floor": {
			attempt.Situation{Result: busy("Retry-After", "2"), Number: 1},
			attempt.Decision{Retry: true, Delay: 2025 * time.Millisecond, Reason: "503"},
		},
		"Retry-After as a date": {
			attempt.Situation{Result: busy("Retry-After", "Tue, 01 Dec 2026 06:00:03 GMT"), Number: 1},
			attempt.Decision{Retry: true, Delay: 3025 * time.Millisecond, Reason: "503"},
		},
		"the date counts from that of the answer": {
			attempt.Situation{Result: busy("Retry-After", "Tue, 01 Dec 2026 07:00:01 GMT", "Date", "Tue, 01 Dec 2026 07:00:00 GMT"), Number: 1},
			attempt.Decision{Retry: true, Delay: 1025 * time.Millisecond, Reason: "503"},
		},
		"a date in the past": {
			attempt.Situation{Result: busy("Retry-After", "Tue, 01 Dec 2026 05:00:00 GMT"), Number: 1},
			attempt.Decision{Retry: true, Delay: 25 * time.Millisecond, Reason: "503"},
		},
		"a Retry-After that does not fit": {attempt.Situation{Result: busy("Retry-After", "60"), Number: 1}, attempt.Decision{Reason: "deadline"}},
		"one that no number holds":        {attempt.Situation{Result: busy("Retry-After", "99999999999999999999"), Number: 1}, attempt.Decision{Reason: "deadline"}},
		"one that is nonsense": {
			attempt.Situation{Result: busy("Retry-After", "soon"), Number: 1},
			attempt.Decision{Retry: true, Delay: 25 * time.Millisecond, Reason: "503"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.s.Timeout, tc.s.Now, tc.s.Jitter = time.Second, date, 0.5
			if tc.s.Left == 0 {
				tc.s.Left = 10 * time.Second
			}
			if got := resolved(t, attempt.Policy{Attempts: 4}).Decide(tc.s); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestThePauseGrowsToItsBound(t *testing.T) {
	p := resolved(t, attempt.Policy{Attempts: 10, BaseDelay: 100 * time.Millisecond, MaxDelay: 300 * time.Millisecond})
	for number, want := range []time.Duration{100, 200, 300, 300} {
		s := attempt.Situation{Result: answered(503), Number: number + 1, Left: time.Minute, Jitter: 1}
		if got := p.Decide(s).Delay; got != want*time.Millisecond {
			t.Errorf("after attempt %d: got %v, want %vms", number+1, got, int(want))
		}
	}
}

func TestOneAttemptTurnsRetriesOff(t *testing.T) {
	got := resolved(t, attempt.Policy{Attempts: 1}).Decide(attempt.Situation{Result: answered(503), Number: 1, Left: time.Minute})
	if got.Retry {
		t.Errorf("got %+v", got)
	}
}

func TestAPolicyOutOfBoundsIsRefused(t *testing.T) {
	for _, p := range []attempt.Policy{
		{Attempts: -1},
		{Attempts: 11},
		{BaseDelay: -1},
		{BaseDelay: time.Second, MaxDelay: time.Millisecond},
		{MaxDelay: time.Hour},
		{Budget: -0.1},
		{Budget: 1.1},
	} {
		if _, err := p.Resolve(); !errors.Is(err, abi.Invalid) {
			t.Errorf("%+v: got %v", p, err)
		}
	}
}

func TestAFieldWithAMeaningCarriesNoKey(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Request-Token", "payment_key"} {
		if err := attempt.CheckKeyHeader(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "Schlüssel", "a:b", "host", "edgehost-fence", "Authorization", "content-length", "Proxy-Authorization"} {
		if err := attempt.CheckKeyHeader(name); !errors.Is(err, abi.Invalid) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
