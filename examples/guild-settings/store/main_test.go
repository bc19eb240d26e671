package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// place is the database that the tests use: they leave guilds in it.
var place = flag.String("database", "", "the postgres:// URL of a database, or the path of a SQLite file; a temporary one if empty")

func open(t *testing.T) *database {
	t.Helper()
	db, err := openDatabase(t.Context(), *place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), `DELETE FROM guild_settings WHERE guild = $1`, t.Name()); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestAWriteWithAnOldFenceChangesNothing(t *testing.T) {
	db := open(t)
	for _, step := range []struct {
		name     string
		fence    int64
		settings string
		stale    bool
		want     string
	}{
		{"the first write", 10, `{"n":1}`, false, `{"n":1}`},
		{"a newer fence", 12, `{"n":2}`, false, `{"n":2}`},
		{"an older fence", 11, `{"n":3}`, true, `{"n":2}`},
		{"the fence of the first", 10, `{"n":1}`, true, `{"n":2}`},
		{"another write under the same fence", 12, `{"n":4}`, true, `{"n":2}`},
		{"the same write again", 12, `{"n":2}`, false, `{"n":2}`},
		{"a fence of today", 1_795_000_000_000_000, `{"n":5}`, false, `{"n":5}`},
	} {
		err := db.write(t.Context(), t.Name(), step.fence, step.settings)
		if stale := err != nil && strings.Contains(err.Error(), errStale.Error()); stale != step.stale || err != nil && !stale {
			t.Errorf("%s: got %v", step.name, err)
		}
		if got, _, err := db.read(t.Context(), t.Name()); got != step.want || err != nil {
			t.Errorf("%s: the settings are %s, %v; want %s", step.name, got, err, step.want)
		}
	}
}

func TestOfWritesAtTheSameTimeTheNewestFenceStays(t *testing.T) {
	db := open(t)
	var writers sync.WaitGroup
	for fence := range int64(50) {
		writers.Go(func() {
			err := db.write(t.Context(), t.Name(), fence+1, `{"n":`+strings.Repeat("1", int(fence)+1)+`}`)
			if err != nil && !strings.Contains(err.Error(), errStale.Error()) {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got, fence, err := db.read(t.Context(), t.Name()); fence != 50 || got != `{"n":`+strings.Repeat("1", 50)+`}` || err != nil {
		t.Errorf("got %s under the fence %d, %v", got, fence, err)
	}
}

func TestADatabaseThatCannotBeUsedIsNamed(t *testing.T) {
	for _, place := range []string{t.TempDir(), "postgres://127.0.0.1:1/none?connect_timeout=1"} {
		if err := run(t.Context(), "http://127.0.0.1:0", place, io.Discard); err == nil || !strings.Contains(err.Error(), "SETTINGS_DATABASE") {
			t.Errorf("%s: got %v", place, err)
		}
	}
}

// start runs the service on a free port and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "http://127.0.0.1:0", *place, out)
		_ = out.Close()
	}()
	r := bufio.NewReader(lines)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err, <-ended)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // ends with the service
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return strings.TrimPrefix(strings.TrimSpace(line), "settings listens on ")
}

// send returns the status and body of the answer.
func send(t *testing.T, method, url, fence, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if fence != "" {
		req.Header.Set("Edgehost-Fence", fence)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

func TestAWriteThatWasHeldUpIsRejected(t *testing.T) {
	url := start(t)
	open(t) // its cleanup removes the guild
	guild := url + "/guilds/" + t.Name()
	if status, body := send(t, "POST", url+"/control/hold", "", ""); status != http.StatusOK {
		t.Fatalf("got %d %s", status, body)
	}
	var late sync.WaitGroup
	late.Go(func() {
		if status, body := send(t, "PUT", guild, "1", `{"late":true}`); status != http.StatusConflict {
			t.Errorf("the late write: got %d %s", status, body)
		}
	})
	for held := ""; held != "1\n"; {
		_, held = send(t, "GET", url+"/held", "", "")
	}
	if status, body := send(t, "PUT", guild, "2", `{"late":false}`); status != http.StatusOK {
		t.Errorf("the newer write: got %d %s", status, body)
	}
	send(t, "POST", url+"/control/release", "", "")
	late.Wait()
	if _, body := send(t, "GET", guild, "", ""); body != "{\"late\":false}\n" {
		t.Errorf("the settings are %s", body)
	}
	if _, body := send(t, "GET", url+"/rejected", "", ""); body != "1\n" {
		t.Errorf("%s were rejected", body)
	}
}

func TestABadWriteIsRefused(t *testing.T) {
	url := start(t)
	for name, tc := range map[string]struct {
		fence, body string
		status      int
	}{
		"without a fence":       {"", `{}`, http.StatusPreconditionRequired},
		"with a fence of words": {"new", `{}`, http.StatusPreconditionRequired},
		"with a negative one":   {"-1", `{}`, http.StatusPreconditionRequired},
		"without JSON":          {"1", `{`, http.StatusBadRequest},
		"too large":             {"1", `"` + strings.Repeat("x", maxSettings) + `"`, http.StatusBadRequest},
	} {
		if status, body := send(t, "PUT", url+"/guilds/"+t.Name(), tc.fence, tc.body); status != tc.status {
			t.Errorf("%s: got %d %s, want %d", name, status, body, tc.status)
		}
	}
	if status, body := send(t, "GET", url+"/guilds/"+t.Name(), "", ""); body != "{}\n" {
		t.Errorf("got %d %s, want no settings", status, body)
	}
	if status, _ := send(t, "POST", url+"/control/dance", "", ""); status != http.StatusNotFound {
		t.Errorf("got %d for a control that there is not", status)
	}
}
