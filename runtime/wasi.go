package runtime

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/guests/abi"
)

// moduleConfig is what a guest gets from WASI: real clocks, the system's
// randomness, a sleep that ends with its request, and lines for the log. The
// engine's defaults are a stopped clock and the same random numbers for all.
func (i *instance) moduleConfig() wazero.ModuleConfig {
	return wazero.NewModuleConfig().
		WithName("").         // instances of one module must not share a name
		WithStartFunctions(). // initialization is a call of its own
		WithSysWalltime().
		WithSysNanotime().
		WithRandSource(&i.random).
		WithNanosleep(i.sleep).
		WithOsyield(func() {}).
		WithStdout(&i.console).
		WithStderr(&i.console)
}

// sleep serves every way to sleep in WASI. It ends early when the client is
// answered or goes away, once, so that a guest which looks can learn of it, and
// at once when the guest is to be stopped.
func (i *instance) sleep(ns int64) {
	i.meter.rest()
	x := &i.x
	until := time.Now().Add(time.Duration(max(0, ns)))
	before := x.flags.Load()
	for {
		left := time.Until(until)
		if left <= 0 || i.guest.stopped() || x.flags.Load() != before {
			return
		}
		x.sleep(left)
	}
}

// randomness is the system's, in pieces between which a guest can be stopped
// that wants its whole memory filled with it.
type randomness struct {
	guest *guestContext
	drawn bool
}

// Read implements io.Reader.
func (r *randomness) Read(b []byte) (int, error) {
	r.drawn = true
	if r.guest.stopped() {
		return 0, errInterrupted
	}
	return rand.Read(b[:min(len(b), 64<<10)])
}

// A console turns what a guest prints into lines of the log. Lines that are
// too long are cut in two.
type console struct {
	inst *instance
	line []byte
}

// Write implements io.Writer. It fails only when the guest is to be stopped: what
// does not fit is dropped.
func (c *console) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if c.inst.guest.stopped() {
			return 0, errInterrupted
		}
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		room := max(0, abi.MaxLogLine-len(c.line))
		if len(line) > room {
			line, rest, whole = b[:room], b[room:], true
		}
		c.line = append(c.line, line...)
		if b = rest; whole {
			c.flush()
		}
	}
	return n, nil
}

// flush logs an unfinished line.
func (c *console) flush() {
	if len(c.line) > 0 {
		c.inst.x.log(slog.LevelInfo, string(bytes.ToValidUTF8(c.line, []byte("\uFFFD"))))
		c.line = c.line[:0]
	}
}

// provideWASI makes WASI importable in r. Standard input, output and error are
// all the files that there are, and they cannot be closed: that would be the
// only state of a guest that WASI keeps, and outlive a request.
func provideWASI(ctx context.Context, r wazero.Runtime) error {
	builder := r.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(builder)
	i32 := []api.ValueType{api.ValueTypeI32}
	builder.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		if fd := uint32(stack[0]); fd > stderr {
			stack[0] = wasiBadFile
			return
		}
		stack[0] = 0
	}), i32, i32).Export("fd_close")
	_, err := builder.Instantiate(ctx)
	return err
}

const (
	stderr      = 2
	wasiBadFile = 8 // errno badf
)
