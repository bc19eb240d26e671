//go:build unix

package runtime

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner refuses a directory that belongs to somebody else, who could open
// it to others at any time.
func checkOwner(dir string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user, and what is in it gets executed: name another directory", dir)
	}
	return nil
}
