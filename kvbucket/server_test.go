package kvbucket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/kvbucket"
)

// childDir is the variable that makes the test binary a server which writes until
// it is killed.
const childDir = "KVBUCKET_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForever(dir); err != nil {
			log.Print(err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// writeForever counts up under one key and prints every revision that was
// acknowledged.
func writeForever(dir string) error {
	ctx := context.Background()
	s, err := kvbucket.StartServer(ctx, kvbucket.ServerConfig{Dir: dir})
	if err != nil {
		return err
	}
	c, err := s.Dial(ctx, kvbucket.ConnConfig{})
	if err != nil {
		return err
	}
	b, err := c.Bucket(ctx, kvbucket.BucketConfig{Name: "test", Replicas: 1})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		r, err := b.Update(ctx, "k."+strconv.Itoa(i), []byte(strconv.Itoa(i)), 0)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, i, r); err != nil {
			return err
		}
	}
}

func TestEveryAcknowledgedWriteSurvivesKill(t *testing.T) {
	const kills, writes = 3, 300
	for range kills {
		dir := t.TempDir()
		acknowledged := killWriter(t, dir, writes)
		s := startServer(t, kvbucket.ServerConfig{Dir: dir})
		b := openBucket(t, dialServer(t, s))
		for key, want := range acknowledged {
			e, err := b.Get(deadline(t), key)
			if err != nil || e.Revision != want {
				t.Errorf("%s is at %d, error %v, and was acknowledged at %d", key, e.Revision, err, want)
			}
		}
	}
}

// killWriter starts a writer, kills it after so many acknowledged writes, and
// returns all that it has reported.
func killWriter(t *testing.T, dir string, writes int) map[string]kvbucket.Revision {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string]kvbucket.Revision{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var i int
		var r kvbucket.Revision
		if _, err := fmt.Sscan(lines.Text(), &i, &r); err == nil { // the last line may be torn
			acknowledged[fmt.Sprintf("k.%d", i)] = r
		}
		if len(acknowledged) == writes {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if _, killed := errors.AsType[*exec.ExitError](err); !killed || len(acknowledged) < writes {
		t.Fatalf("the writer ended with %v after %d writes", err, len(acknowledged))
	}
	return acknowledged
}

func TestDataSurvivesACleanRestart(t *testing.T) {
	dir := t.TempDir()
	var last kvbucket.Revision
	for range 3 {
		s := startServer(t, kvbucket.ServerConfig{Dir: dir, LazySync: true})
		c := dialServer(t, s)
		last = mustUpdate(t, openBucket(t, c), "k", "v", last)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
	}
}

func TestADirectoryHasOneServer(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, kvbucket.ServerConfig{Dir: dir})
	_, err := kvbucket.StartServer(t.Context(), kvbucket.ServerConfig{Dir: dir})
	wantText(t, err, dir, fmt.Sprintf("in use by process %d", os.Getpid()))
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	startServer(t, kvbucket.ServerConfig{Dir: dir})
}

func TestABusyPortIsRecognised(t *testing.T) {
	l, err := net.Listen("tcp", listenAny)
	if err != nil {
		t.Fatal(err)
	}
	defer closeListener(t, l)
	dir := t.TempDir()
	_, err = kvbucket.StartServer(t.Context(), kvbucket.ServerConfig{Dir: dir, Listen: l.Addr().String()})
	wantError(t, err, syscall.EADDRINUSE)
	wantText(t, err, l.Addr().String())
	startServer(t, kvbucket.ServerConfig{Dir: dir, Listen: listenAny}) // the directory is free again
}

func TestAServerIsReachedByURLAndWithinTheProcess(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") || strings.HasSuffix(s.URL(), ":0") {
		t.Errorf("URL is %q", s.URL())
	}
	c, err := kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	r := mustUpdate(t, openBucket(t, c), "k", "v", 0)
	e, err := openBucket(t, dialServer(t, s)).Get(deadline(t), "k")
	if err != nil || e.Revision != r {
		t.Errorf("got %v and error %v", e, err)
	}
	if hidden := startServer(t, kvbucket.ServerConfig{LazySync: true}); hidden.URL() != "" {
		t.Errorf("a server that does not listen has URL %q", hidden.URL())
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked := t.TempDir()
	if err := os.WriteFile(filepath.Join(blocked, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  kvbucket.ServerConfig
		says string
	}{
		{"no directory", kvbucket.ServerConfig{}, "no directory"},
		{"the directory is a file", kvbucket.ServerConfig{Dir: file}, file},
		{"the store cannot be opened", kvbucket.ServerConfig{Dir: blocked}, blocked},
		{"no port", kvbucket.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1"}, "missing port"},
		{"not an address of this machine", kvbucket.ServerConfig{Dir: t.TempDir(), Listen: "192.0.2.1:0"}, "192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := kvbucket.StartServer(t.Context(), tt.cfg)
			wantText(t, err, tt.says)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := kvbucket.StartServer(ended, kvbucket.ServerConfig{Dir: t.TempDir()})
	wantError(t, err, context.Canceled)
}

func TestServerCountsMessages(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	count := func() int64 {
		n, err := s.InMsgs()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	if again := count(); again != before {
		t.Errorf("%d messages while nothing was sent", again-before)
	}
	mustUpdate(t, b, "k", "v", 0)
	eventually(t, "an update is one message", func() bool { return count()-before == 1 })
}

func TestWeakChoicesAreWarnedOf(t *testing.T) {
	lines := make(chan string, 100)
	warnings := slog.New(slog.NewTextHandler(lineWriter(lines), &slog.HandlerOptions{Level: slog.LevelWarn}))
	startServer(t, kvbucket.ServerConfig{Listen: listenAny, Logger: warnings})
	if len(lines) > 0 {
		t.Errorf("a safe server warns %q", <-lines)
	}
	startServer(t, kvbucket.ServerConfig{Listen: "0.0.0.0:0", LazySync: true, Logger: warnings})
	for _, want := range []string{"before they are on disk", "without authentication"} {
		if len(lines) == 0 {
			t.Fatalf("no warning %q", want)
		}
		if line := <-lines; !strings.Contains(line, want) {
			t.Errorf("warned %q, want %q", line, want)
		}
	}
}
