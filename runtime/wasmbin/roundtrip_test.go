package wasmbin_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// specDir is the folder of wazero's copy of the specification tests.
func specDir(tb testing.TB) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		tb.Fatalf("find wazero's source: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
}

func TestScratch(t *testing.T) {
	ctx := t.Context()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	defer rt.Close(ctx)
	n, acc, same := 0, 0, 0
	filepath.WalkDir(specDir(t), func(path string, d fs.DirEntry, err error) error {
		if !strings.HasSuffix(path, ".wasm") {
			return nil
		}
		n++
		b, _ := os.ReadFile(path)
		c, werr := rt.CompileModule(ctx, b)
		if c != nil {
			c.Close(ctx)
		}
		m, derr := wasmbin.Decode(b)
		if werr == nil {
			acc++
		}
		if (werr == nil) && (derr != nil) {
			t.Logf("%s: %v / %v", filepath.Base(path), werr, derr)
		}
		if derr == nil {
			e := m.Encode()
			if bytes.Equal(e, b) {
				same++
			} else if werr == nil {
				t.Logf("differ %s", path)
			}
			c, werr2 := rt.CompileModule(ctx, e)
			if c != nil {
				c.Close(ctx)
			}
			if (werr == nil) != (werr2 == nil) {
				t.Logf("%s: after encode %v / %v", filepath.Base(path), werr, werr2)
			}
		}
		return nil
	})
	t.Log(n, acc, same)
}
