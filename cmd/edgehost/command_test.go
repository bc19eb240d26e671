package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lineWriter hands on complete lines.
type lineWriter struct{ lines chan string }

func (w lineWriter) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		w.lines <- strings.TrimSpace(line)
	}
	return len(text), nil
}

// start runs a command line and waits for its first line of output.
func start(t *testing.T, line string) *command {
	t.Helper()
	out := lineWriter{make(chan string, 16)}
	c, err := startCommand(line, t.TempDir(), os.Environ(), out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop(0) })
	select {
	case <-out.lines:
	case <-c.ended:
		t.Fatalf("%s ended: %v", line, c.err)
	}
	return c
}

// requireGroupGone waits until no process of a command's group is left. Processes
// that have ended stay in their group until they are waited for, which for
// orphans whoever runs as process 1 does.
func requireGroupGone(t *testing.T, c *command) {
	t.Helper()
	eventually(t, "the process group is gone", func() bool {
		return syscall.Kill(-c.process.Process.Pid, 0) == syscall.ESRCH || onlyZombies(t, c.process.Process.Pid)
	})
}

// onlyZombies reports whether all processes of a group have ended, where the
// system tells.
func onlyZombies(t *testing.T, group int) bool {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // state, parent, group
		if len(fields) > 2 && fields[2] == itoa(group) && fields[0] != "Z" {
			return false
		}
	}
	return len(stats) > 0
}

func TestStopEndsTheWholeGroupOfACommand(t *testing.T) {
	c := start(t, "sleep 1000 & sh -c 'sleep 1000 & wait' & echo up; wait")
	c.Stop(time.Minute)
	requireGroupGone(t, c)
}

func TestStopKillsWhatIgnoresTheRequest(t *testing.T) {
	c := start(t, "trap '' TERM; echo up; while :; do sleep 1000; done")
	c.Stop(time.Millisecond)
	requireGroupGone(t, c)
}

func TestACommandDiesWithThisProcess(t *testing.T) {
	c := start(t, "trap '' TERM; sleep 1000 & echo up; wait")
	if err := c.pipe.Close(); err != nil { // what the end of this process does
		t.Fatal(err)
	}
	<-c.ended
	requireGroupGone(t, c)
}

func TestWhatACommandLeavesInTheBackgroundEndsWithIt(t *testing.T) {
	c := start(t, "sleep 1000 & echo up")
	<-c.ended
	if c.err != nil {
		t.Errorf("the command ended with %v", c.err)
	}
	requireGroupGone(t, c)
}

func TestWaitInACommandDoesNotWaitForItsGuard(t *testing.T) {
	c := start(t, "true & wait; echo up")
	<-c.ended
	if c.err != nil {
		t.Errorf("the command ended with %v", c.err)
	}
}

func TestTheStatusOfACommandIsReported(t *testing.T) {
	err := runCommand(t.Context(), "exit 7", t.TempDir(), os.Environ(), io.Discard)
	if got := exitCode(err); got != 7 {
		t.Errorf("the command ended with %v, want status 7", err)
	}
}

func TestPrefixerNamesEveryLine(t *testing.T) {
	var out bytes.Buffer
	p := &prefixer{out: &out, prefix: "[upstream] "}
	for _, text := range []string{"one\ntwo", " still\n", "\n", "unfinished"} {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write returned %d, %v", n, err)
		}
	}
	if want := "[upstream] one\n[upstream] two still\n[upstream] \n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestLabelIsWhatALineRuns(t *testing.T) {
	for line, want := range map[string]string{"go run ./upstream": "upstream", "python3 tools/mock.py": "mock.py", "": "run"} {
		if got := label(line); got != want {
			t.Errorf("label(%q) = %q, want %q", line, got, want)
		}
	}
}
