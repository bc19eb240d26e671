package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// A loader turns modules into compiled code, and keeps it.
type loader struct {
	cache    wazero.CompilationCache
	kept     rewritten
	written  *pagemap
	compiler bool // false: this machine can only interpret

	mu    sync.Mutex // guards busy
	busy  map[[sha256.Size]byte]*turn
	slots chan struct{} // bounds the compilations at a time: each uses every processor
}

// A turn is the right to compile one module.
type turn struct {
	sync.Mutex
	users int
}

// newLoader opens the directory with compiled code. With an empty name the code
// is kept in memory only.
func newLoader(ctx context.Context, dir string, logger *slog.Logger) (*loader, error) {
	l := &loader{busy: make(map[[sha256.Size]byte]*turn), slots: make(chan struct{}, 2), written: openPagemap()}
	if l.compiler = canCompile(ctx); !l.compiler {
		logger.WarnContext(ctx, "functions are interpreted: this system does not allow compiled code, so they run many times slower")
	}
	if dir == "" {
		l.cache = wazero.NewCompilationCache()
		return l, nil
	}
	if err := preparePrivate(dir); err != nil {
		return nil, fmt.Errorf("runtime: compile cache: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("runtime: compile cache: %w", err)
	}
	l.cache, l.kept = cache, rewritten(filepath.Join(dir, rewritingVersion))
	return l, nil
}

func (l *loader) close(ctx context.Context) error {
	l.written.close()
	return l.cache.Close(ctx)
}

// preparePrivate sees to it that a directory exists and that nobody else can
// write to it: the engine runs what it finds there.
func preparePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); goruntime.GOOS != "windows" && mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o, so that others can reach it, and what is in it gets executed: chmod 700 it, or name another directory", dir, mode)
	}
	return checkOwner(dir, info)
}

// canCompile tries whether the engine can make memory executable, which some
// systems forbid; the engine then falls back to interpreting without a word.
func canCompile(ctx context.Context) (ok bool) {
	defer func() {
		if recover() != nil { // which is how the compiler reports it
			ok = false
		}
	}()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer func() { _ = r.Close(ctx) }()
	// One function, () -> (), without instructions.
	_, err := r.CompileModule(ctx, []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x04\x01\x02\x00\x0b"))
	return err == nil
}

// A module is a function's code, ready to be instantiated. It has an engine
// runtime of its own, since memory limits belong to these, and so that functions
// cannot reach each other by name.
type module struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	begin    wasmbin.Image // what memory holds before initialization, if the engine does not know
	snapshot *snapshot     // what instances begin with; nil: with an initialization of their own
}

// load checks and compiles the module of a function.
func (l *loader) load(ctx context.Context, cfg FunctionConfig) (*module, error) {
	pages := uint32(cfg.Memory / pageSize)
	if err := checkBinary(cfg.Module, pages); err != nil {
		return nil, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCompilationCache(l.cache).
		WithMemoryLimitPages(pages).
		WithDebugInfoEnabled(false))
	m, err := l.loadInto(ctx, r, cfg)
	if err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return m, nil
}

func (l *loader) loadInto(ctx context.Context, r wazero.Runtime, cfg FunctionConfig) (*module, error) {
	if err := provideHost(ctx, r); err != nil {
		return nil, fmt.Errorf("provide %s: %w", "the host's functions", err)
	}
	if err := provideMeter(ctx, r); err != nil {
		return nil, fmt.Errorf("provide %s: %w", wasmbin.MeterModule, err)
	}
	if err := provideWASI(ctx, r); err != nil {
		return nil, fmt.Errorf("provide %s: %w", wasi_snapshot_preview1.ModuleName, err)
	}
	compiled, rewritten, err := l.compile(ctx, r, cfg.Module)
	if err != nil {
		return nil, err
	}
	data, exposed := wasmbin.ImageOf(rewritten)
	if err := checkCompiled(compiled, r, data); err != nil {
		return nil, errors.Join(err, compiled.Close(ctx))
	}
	m := &module{runtime: r, compiled: compiled, begin: bytes.Clone(data)} // the rest is not needed any more
	if exposed && cfg.Isolation == IsolationRequest {
		m.snapshot = &snapshot{written: l.written}
	}
	return m, nil
}

// compile rewrites and compiles a module, or finds that done; it returns what it
// was rewritten to as well. The engine's cache does not
// keep two callers from compiling the same module at once, so that is done here.
func (l *loader) compile(ctx context.Context, r wazero.Runtime, binary []byte) (m wazero.CompiledModule, rewritten []byte, err error) {
	digest := sha256.Sum256(binary)
	l.mu.Lock()
	t := l.busy[digest]
	if t == nil {
		t = new(turn)
		l.busy[digest] = t
	}
	t.users++
	l.mu.Unlock()
	defer func() {
		t.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.busy, digest)
		}
	}()
	t.Lock()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-l.slots }()
	if rewritten, err = l.kept.module(digest, binary); err != nil {
		return nil, nil, err
	}
	m, err = compile(experimental.WithCompilationWorkers(ctx, goruntime.GOMAXPROCS(0)), r, rewritten)
	return m, rewritten, err
}

// compile compiles a module. The engine has been seen to panic on some that are
// not valid.
func compile(ctx context.Context, r wazero.Runtime, binary []byte) (m wazero.CompiledModule, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("not a valid WebAssembly module: the compiler failed: %v", fault)
		}
	}()
	if m, err = r.CompileModule(ctx, binary); err != nil {
		return nil, fmt.Errorf("not a valid WebAssembly module: %w", err)
	}
	return m, nil
}

// close releases the code, after the last instance is closed.
func (m *module) close(ctx context.Context) error {
	m.snapshot.close()
	return errors.Join(m.compiled.Close(ctx), m.runtime.Close(ctx))
}
