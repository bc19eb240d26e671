package kvbucket

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes an exclusive lock that ends with the open file, so also when the
// process is killed. It covers a byte far behind the content, which stays readable.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: 1 << 30})
}
