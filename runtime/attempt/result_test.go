package attempt_test

import (
	"errors"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
	"github.com/edgehost/edgehost/runtime/egress"
)

func TestWhatAnAttemptSaysAboutItsDependency(t *testing.T) {
	late := failed(egress.Timeout)
	late.Took = 500 * time.Millisecond
	for name, tc := range map[string]struct {
		result attempt.Result
		want   objects.Outcome
	}{
		"200":                           {answered(200), objects.Success},
		"404 is an answer":              {answered(404), objects.Success},
		"429":                           {answered(429), objects.Failure},
		"500":                           {answered(500), objects.Failure},
		"503":                           {answered(503), objects.Failure},
		"no connection":                 {failed(egress.Connect), objects.Failure},
		"a reset":                       {failed(egress.AfterWrite), objects.Failure},
		"a cut before half of the time": {failed(egress.Timeout), objects.Canceled},
		"a cut after half of the time":  {late, objects.Failure},
		"a client that has gone":        {failed(egress.Canceled), objects.Canceled},
		"a target that is not allowed":  {failed(egress.Denied), objects.Excluded},
		"a request that is malformed":   {failed(egress.Invalid), objects.Excluded},
		"an error that nobody knows":    {attempt.Result{Err: errors.New("?")}, objects.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.result.Outcome(time.Second, nil); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestExclusionsAreNoVerdict(t *testing.T) {
	excluded, err := attempt.ParseExclusions([]string{"404", "5xx", "reset", "timeout"})
	if err != nil {
		t.Fatal(err)
	}
	late := failed(egress.Timeout)
	late.Took = time.Second
	for name, tc := range map[string]struct {
		result attempt.Result
		want   objects.Outcome
	}{
		"a status":                     {answered(404), objects.Excluded},
		"the next one":                 {answered(405), objects.Success},
		"the first of a class":         {answered(500), objects.Excluded},
		"the last of a class":          {answered(599), objects.Excluded},
		"another failure":              {answered(429), objects.Failure},
		"a reset after the first byte": {failed(egress.AfterWrite), objects.Excluded},
		"a reset before it":            {failed(egress.BeforeWrite), objects.Excluded},
		"a timeout":                    {late, objects.Excluded},
		"no connection":                {failed(egress.Connect), objects.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.result.Outcome(time.Second, excluded); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAnExclusionThatIsNoneIsRefused(t *testing.T) {
	for _, entry := range []string{"", "xx", "4x", "099", "199", "600", "6xx", "1xx", "-404", "404 ", "4XX", "refused"} {
		if _, err := attempt.ParseExclusions([]string{"404", entry}); !errors.Is(err, abi.Invalid) {
			t.Errorf("%q: got %v", entry, err)
		}
	}
}
