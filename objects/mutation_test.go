package objects_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulationCatchesMutations shows that the simulation can fail: each mutation
// breaks one of the rules that everything rests on.
func TestSimulationCatchesMutations(t *testing.T) {
	const simulation = "TestSimulation$"
	for name, m := range map[string]struct{ file, before, after, test string }{
		"a release is taken whatever its fence": {
			"internal/record/page.go", "if p.Leases[c.Lease].Fence != c.Fence {", "if _, ok := p.Leases[c.Lease]; !ok {", simulation,
		},
		"answers go out before the commit": {
			"node.go", "switch err := n.carryOut(p); {", "n.release(p)\n\t\tswitch err := n.carryOut(p); {", simulation,
		},
		"owners measure by the wall clock": {
			"host.go", "record.Now{Mono: now.mono,", "record.Now{Mono: now.wall.Sub(time.Time{}.AddDate(1999, 0, 0)),", simulation,
		},
		"a read is trusted though the store says that it is old": {
			"state.go", "rev, err = c.write(ctx, s, rev)",
			"if next, w := c.write(ctx, s, rev); !errors.Is(w, kvbucket.ErrConflict) {\n\t\t\trev, err = next, w\n\t\t}", simulation,
		},
		"claims restart the lapse clock": {
			"internal/record/clock.go", "{ c.since = now.Mono }", "{ c.since, c.Elapsed = now.Mono, 0 }", "TestOwnersThatChangeEverySecondKeepNothingAlive$",
		},
		"the newest attempt counts, whichever was granted": {
			"internal/record/page.go", "Attempt: held.Attempt}, false", "Attempt: c.Attempt}, false", simulation,
		},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(source), m.before) != 1 {
				t.Fatalf("%s does not have %q once", m.file, m.before)
			}
			args := []string{
				"test", "-count=1", "-overlay=" + overlay(t, m.file, strings.Replace(string(source), m.before, m.after, 1)),
				"-run=^" + m.test, ".", "-sim.runs=500",
			}
			out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
			switch {
			case err == nil:
				t.Error("the mutation was not caught")
			case !strings.Contains(string(out), "--- FAIL: "+strings.TrimSuffix(m.test, "$")):
				t.Errorf("the mutation was not caught by a test: %s", out)
			}
		})
	}
}

// overlay describes a build in which file has another content.
func overlay(t *testing.T, file, content string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, described := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(content), described: data} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return described
}
