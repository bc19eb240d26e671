package runtime_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutate = flag.Bool("scenarios.mutate", false, "break each rule of the table of scenarios, and see its test fail")

// A scenario is a failure that others have had, and the test that this program
// does not have it.
type scenario struct {
	source        string // where it was reported, and what happened
	dir, test     string // the test, and the directory of its package
	file          string // a mutation of this file makes it fail:
	before, after string
}

// scenarios are those of breakers, retries and fenced writes.
var scenarios = []scenario{
	{
		"App-vNext/Polly #216, antflydb/termite #27, pathosDev/actor-ts #457: all callers go out at once when the breaker is half-open",
		"../objects", "TestOneProbeForCallersOnManyHosts",
		"../objects/internal/record/object.go", "if left := o.Remaining(now); left > 0 {", "if left := o.Remaining(now); left < 0 {",
	},
	{
		"App-vNext/Polly #217, telekom/k8s-breakglass #981: a late result of the closed breaker counts in a later state",
		"../objects/internal/record", "TestCallsOfClosedBreakerSayNothingLater",
		"../objects/internal/record/object.go", "if b.State != Closed || c.Generation != b.Generation {", "if c.Generation != b.Generation {",
	},
	{
		"the same, by the rate",
		"../objects", "TestCallsOfAnEarlierGenerationAreNotInTheWindow",
		"../objects/meter.go", "if generation != m.generation {", "if generation > m.generation {",
	},
	{
		"a probe that lapsed reports its success after the next one has failed",
		"../objects/internal/record", "TestEveryStateAndOutcome",
		"../objects/internal/record/object.go", "c.Generation != b.Generation || c.Fence != o.Probe.Fence", "c.Generation != b.Generation",
	},
	{
		"nodeshift/opossum #388, App-vNext/Polly #717: a filtered error leaves the breaker half-open for ever",
		".", "TestAnExcludedProbeLeavesTheProbeToTheNext",
		"../objects/internal/record/object.go", "if c.Verdict == NoVerdict {", "if c.Verdict > NoVerdict {",
	},
	{
		"Comcast/jrugged #21: a failed probe closes the breaker",
		"../objects/internal/record", "TestEveryStateAndOutcome",
		"../objects/internal/record/object.go", "if c.Verdict == Success {", "if c.Verdict != NoVerdict {",
	},
	{
		"envoyproxy/envoy #30205: retries that wait are not in the budget",
		"attempt", "TestRetriesCountWhenTheyAreQueued",
		"attempt/budget.go", "b.counts[b.newest%slots].retries++", "",
	},
	{
		"golang/go #19943: the transport repeats requests with an idempotency key, under the retries of its caller",
		"egress", "TestADependencyIsSentARequestOnce",
		"egress/once.go", "out.GetBody = nil", "",
	},
	{
		"an attempt begins that the deadline is sure to cut off",
		"attempt", "TestNoAttemptStartsThatCannotEndInTime",
		"attempt/policy.go", "delay > s.Left-needed", "delay-needed > s.Left",
	},
	{
		"a call whose lease or reservation was lost while it waited is made again",
		"attempt", "TestACallThatLostItsLeaseIsNotTriedAgain",
		"attempt/retries.go", "return owned()", "return nil",
	},
	{
		"a holder is suspended while its write is on its way, and the write arrives under the next one's lease",
		"../examples/guild-settings/store", "TestAWriteWithAnOldFenceChangesNothing",
		"../examples/guild-settings/store/database.go", "AND fencing_token < $2", "AND fencing_token <> $2",
	},
}

func TestEveryScenarioHasItsTest(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.source, func(t *testing.T) {
			if !hasTest(t, s.dir, s.test) {
				t.Errorf("%s has no %s", s.dir, s.test)
			}
			source, err := os.ReadFile(s.file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(source), s.before) != 1 {
				t.Fatalf("%s does not have %q once", s.file, s.before)
			}
			if *mutate {
				s.fails(t, strings.Replace(string(source), s.before, s.after, 1))
			}
		})
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, dir, name string) (found bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			found = found || ok && f.Recv == nil && f.Name.Name == name
		}
	}
	return found
}

// fails runs the scenario's test with the mutation, which must make it fail.
func (s scenario) fails(t *testing.T, mutated string) {
	t.Helper()
	original, err := filepath.Abs(s.file)
	if err != nil {
		t.Fatal(err)
	}
	replacement := filepath.Join(t.TempDir(), "mutated.go")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	for file, text := range map[string]string{replacement: mutated, overlay: string(table)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay="+overlay, "-run=^"+s.test+"$", ".")
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "--- FAIL: "+s.test) {
		t.Errorf("the mutation is not caught: %v\n%s", err, out)
	}
}
