package runtime

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// tableElements bounds the elements of all tables of an instance together. One
// takes 8 bytes of the host, which no limit of memory counts.
const tableElements = 1 << 20

// rewritingVersion changes whenever rewriting makes something else of a module:
// what was kept of an earlier version is then not used.
const rewritingVersion = "rewritten-1"

// rewritten is a directory of modules that have been rewritten, by the digest of
// the module that they were made of. Rewriting takes longer than everything else
// that comes before the first answer of a host that starts again. What is in it
// gets executed: it is as private as compiled code. Empty: nothing is kept.
type rewritten string

// module returns what is compiled in place of a module.
func (dir rewritten) module(digest [sha256.Size]byte, original []byte) ([]byte, error) {
	if dir == "" {
		return rewrite(original)
	}
	path := filepath.Join(string(dir), hex.EncodeToString(digest[:]))
	if kept, err := os.ReadFile(path); err == nil && sealed(kept) {
		return kept[crc32.Size:], nil
	}
	module, err := rewrite(original)
	if err != nil {
		return nil, err
	}
	if err := dir.keep(path, module); err != nil {
		return nil, fmt.Errorf("keep the rewritten module: %w", err)
	}
	return module, nil
}

// sealed reports whether a file holds all that was written to it: it begins
// with a checksum of the rest. A host may die, and a disk be full, at any point.
func sealed(file []byte) bool {
	return len(file) > crc32.Size && seal(file[crc32.Size:]) == [crc32.Size]byte(file)
}

func seal(module []byte) (sum [crc32.Size]byte) {
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(module, crc32.MakeTable(crc32.Castagnoli)))
	return sum
}

// keep writes a file that is there as a whole or not at all.
func (dir rewritten) keep(path string, module []byte) error {
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(dir), "new-*") // of mode 0600
	if err != nil {
		return err
	}
	sum := seal(module)
	_, err = f.Write(sum[:])
	if err == nil {
		_, err = f.Write(module)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// rewrite makes a module count its work and puts its state within reach, if that
// can be.
func rewrite(original []byte) ([]byte, error) {
	m, err := wasmbin.Decode(original)
	if err == nil {
		share := tableElements / max(1, len(m.Tables))
		err = wasmbin.Meter(m, wasmbin.MeterOptions{TableLimit: uint32(max(1, share))})
	}
	if err == nil {
		err = wasmbin.Expose(m)
	}
	if err != nil && !errors.Is(err, wasmbin.ErrHidden) {
		return nil, fmt.Errorf("not a valid WebAssembly module: %w", err)
	}
	return m.Encode(), nil
}
