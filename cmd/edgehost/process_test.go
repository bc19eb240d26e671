package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket/natstest"
)

// asProgram in the environment makes the test binary the program itself: tests
// that need a process of it need not build it.
const asProgram = "EDGEHOST_TEST_AS_PROGRAM=1"

func TestMain(m *testing.M) {
	if natstest.Serve() {
		return
	}
	name, value, _ := strings.Cut(asProgram, "=")
	if os.Getenv(name) == value {
		main()
		return
	}
	os.Exit(m.Run())
}

// A process is an edgehost that runs by itself, as a terminal would start it: in
// a process group that a Ctrl-C reaches.
type process struct {
	cmd    *exec.Cmd
	marker string // in the environment of the process and of all it starts
	lines  chan string
	stderr *synced
	errors *bytes.Buffer
	ended  chan struct{}
	state  error
}

// startProcess runs the program. What it has started is gone when the test ends.
func startProcess(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{lines: make(chan string, 1024), errors: &bytes.Buffer{}, ended: make(chan struct{})}
	p.marker = "EDGEHOST_TEST_PROCESS=" + t.Name() + "/" + itoa(int(time.Now().UnixNano()))
	p.stderr = &synced{out: p.errors}
	p.cmd = exec.Command(file, args...)
	p.cmd.Env = append(append(os.Environ(), environ...), asProgram, p.marker)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup waits for
		defer close(p.ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		p.state = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.signalGroup(syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			p.stderr.mu.Lock()
			defer p.stderr.mu.Unlock()
			t.Logf("%v printed:\n%s", args, p.errors)
		}
	})
	return p
}

func (p *process) signalGroup(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

// log returns what the process has written to stderr so far.
func (p *process) log() string {
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	return p.errors.String()
}

// await returns what a pattern's first group matches in the next line of stdout
// that it matches.
func (p *process) await(t *testing.T, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	deadline := time.NewTimer(2 * time.Minute) // the first build of a guest may be cold
	defer deadline.Stop()
	for {
		select {
		case line := <-p.lines:
			if match := expression.FindStringSubmatch(line); match != nil {
				return match[len(match)-1]
			}
		case <-p.ended:
			t.Fatalf("the process ended before it printed %q: %v\n%s", pattern, p.state, p.log())
		case <-deadline.C:
			t.Fatalf("the process does not print %q\n%s", pattern, p.log())
		}
	}
}

// interrupt presses Ctrl-C and returns how long the process took to end.
func (p *process) interrupt(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	p.signalGroup(syscall.SIGINT)
	<-p.ended
	if p.state != nil {
		t.Errorf("after Ctrl-C the process ended with %v", p.state)
	}
	return time.Since(begin)
}

// interruptAgain presses Ctrl-C, of a process that is stopping, until it ends: the
// first press may come before the default action is back.
func (p *process) interruptAgain(t *testing.T) {
	t.Helper()
	eventually(t, "the process ends", func() bool {
		p.signalGroup(syscall.SIGINT)
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if !errors.As(p.state, &exit) || exit.ExitCode() != -1 {
		t.Errorf("the process ended with %v, want the signal", p.state)
	}
}

// kill ends the process, and only it, the hard way.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// requireNothingLeft waits until nothing runs any more that the process has
// started, however it has moved between groups: all of it has the marker.
func (p *process) requireNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of the process is left", func() bool { return len(p.alive(t)) == 0 })
}

// alive returns the command lines of what runs with the marker. Only Linux tells
// the environment of a process; elsewhere the groups and ports have to do.
func (p *process) alive(t *testing.T) []string {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var alive []string
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err == nil && bytes.Contains(environ, []byte(p.marker+"\x00")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			alive = append(alive, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return alive
}

// copyTree copies a directory without what was built in it.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case entry.Name() == ".edgehost":
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		case filepath.Ext(path) == ".wasm":
			return nil
		}
		return copyFile(path, filepath.Join(to, relative))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, in.Close(), out.Close())
}
