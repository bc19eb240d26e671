package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// guarded runs a command line so that nothing of it outlives this process. Its
// process group holds a watcher that reads from a pipe whose other end only
// this process has: when that end closes, however this process ended, the
// watcher kills the group. It ignores the signals that ask politely, and so
// also keeps the number of the group taken until the group is killed.
const guarded = `{ trap '' TERM INT HUP; read -r line; kill -KILL 0; } <&3 >/dev/null 2>&1 & exec 3<&-; exec sh -c "$1"`

// A command is a shell command line that runs in a process group of its own:
// a Ctrl-C in the terminal does not reach it, and nothing of it is left behind.
type command struct {
	process *exec.Cmd
	pipe    *os.File
	ended   chan struct{}
	err     error // of the command; may be read once ended is closed
}

// startCommand starts a command line in a directory. Its output and its errors
// go to the same writer.
func startCommand(line, dir string, environ []string, output io.Writer) (*command, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting %q: %w", line, err)
	}
	defer func() { _ = theirs.Close() }() // the command has its own copy
	c := &command{process: exec.Command("sh", "-c", guarded, "sh", line), pipe: ours, ended: make(chan struct{})}
	c.process.Dir = dir
	c.process.Env = environ
	c.process.Stdout, c.process.Stderr = output, output
	c.process.ExtraFiles = []*os.File{theirs}
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What the command left in the background may hold its output open.
	c.process.WaitDelay = 100 * time.Millisecond
	if err := c.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %q: %w", line, err), ours.Close())
	}
	go func() { // ends with the process; Stop waits for it
		defer close(c.ended)
		if c.err = c.process.Wait(); errors.Is(c.err, exec.ErrWaitDelay) {
			c.err = nil // it ended well, and left something in the background
		}
		c.signal(syscall.SIGKILL) // the watcher, and what was left in the background
		_ = c.pipe.Close()        // nothing was written to it
	}()
	return c, nil
}

// signal reaches every process of the group. The group may be gone.
func (c *command) signal(s syscall.Signal) { _ = syscall.Kill(-c.process.Process.Pid, s) }

// Stop asks the whole group to end, first as Ctrl-C would: wrappers such as `go
// run` wait for what they have started then, and leave no orphans. What ignores
// that, and the request after it, each for the grace, is killed. Stop returns when
// the command has ended.
func (c *command) Stop(grace time.Duration) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c.signal(s)
		timer := time.NewTimer(grace)
		select {
		case <-c.ended:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	c.signal(syscall.SIGKILL)
	<-c.ended
}

// runCommand runs a command line to its end, or to that of ctx.
func runCommand(ctx context.Context, line, dir string, environ []string, output io.Writer) error {
	c, err := startCommand(line, dir, environ, output)
	if err != nil {
		return err
	}
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		c.Stop(commandGrace)
		return context.Cause(ctx)
	}
}

// commandGrace is how long a command may take to end at each request.
const commandGrace = 400 * time.Millisecond

// exitCode returns the status with which a command ended, or -1.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// A prefixer puts a name before every line of a command's output.
type prefixer struct {
	out    io.Writer
	prefix string
	rest   []byte // a line that has not ended
}

// Write implements [io.Writer]. A command writes from one goroutine.
func (p *prefixer) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	if end == 0 {
		return len(text), nil
	}
	var lines bytes.Buffer
	for line := range bytes.Lines(p.rest[:end]) {
		lines.WriteString(p.prefix)
		lines.Write(line)
	}
	p.rest = append(p.rest[:0], p.rest[end:]...)
	if _, err := p.out.Write(lines.Bytes()); err != nil {
		return 0, fmt.Errorf("printing the output of a command: %w", err)
	}
	return len(text), nil
}

// A synced writer lets several goroutines share one that expects a single one.
type synced struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

// Write implements [io.Writer].
func (s *synced) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(text)
}
