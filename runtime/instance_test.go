package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// Errors as the engine makes them: only a trap is a fault of the guest alone.
func TestFaultOfTheHostIsNoTrap(t *testing.T) {
	t.Parallel()
	var nobody *instance
	for name, c := range map[string]struct {
		call func()
		want string
	}{
		"a trap":                  {func() {}, retiredTrap},
		"a text":                  {func() { panic("broken") }, retiredHost},
		"an error":                {func() { panic(errors.New("broken")) }, retiredHost},
		"an error of the runtime": {func() { nobody.served++ }, retiredHost},
		"an exit":                 {func() { panic(sys.NewExitError(0)) }, retiredExit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := wazero.NewRuntime(t.Context())
			t.Cleanup(func() { _ = r.Close(context.Background()) })
			_, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().
				WithGoFunction(api.GoFunc(func(context.Context, []uint64) { c.call() }), nil, nil).Export("call").Instantiate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m := &wasmbin.Module{
				Types:   []wasmbin.FuncType{{}},
				Imports: []wasmbin.Import{{Module: "host", Name: "call"}},
				Funcs:   []wasmbin.Func{{Body: []byte{0x10, 0x00, 0x00, 0x0b}}}, // call, unreachable
				Exports: []wasmbin.Export{{Name: "run", Index: 1}},
			}
			guest, err := r.Instantiate(t.Context(), m.Encode())
			if err != nil {
				t.Fatal(err)
			}
			_, err = guest.ExportedFunction("run").Call(t.Context())
			if got := reasonOf(fmt.Errorf("run: %w", err)); got != c.want {
				t.Errorf("got %s for %v, want %s", got, err, c.want)
			}
		})
	}
}
