package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A guild is the guild-settings example, run by `edgehost dev`.
type guild struct {
	*process
	url, store string
}

// openGuild starts the example in a copy of its own, with its settings service on
// a free port. SETTINGS_DATABASE decides about its database, as it does for
// everybody.
func openGuild(t *testing.T) *guild {
	t.Helper()
	copyExample(t, "guild-settings")
	g := &guild{store: "http://" + freeAddress(t)}
	g.process = startProcess(t, []string{"SETTINGS_URL=" + g.store, "TMPDIR=" + t.TempDir()}, "dev", "guild-settings",
		"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--nats-listen=127.0.0.1:0")
	g.url = g.await(t, `is served at (http://\S+)$`) + guildPath()
	eventually(t, "the settings service answers", func() bool { return g.get(t, "/held") == "0" })
	return g
}

// guildPath names a guild that no other test uses, nor an earlier run.
func guildPath() string { return "/guilds/" + itoa(int(time.Now().UnixNano())) }

// get returns what the settings service answers.
func (g *guild) get(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(fetch(t, http.DefaultClient, g.store+path))
}

// tell controls what the settings service does with writes.
func (g *guild) tell(t *testing.T, what string) {
	t.Helper()
	if got := post(t, g.store+"/control/"+what); got.status != http.StatusOK {
		t.Fatalf("telling the settings service to %s gave %+v", what, got)
	}
}

// change sends a change and returns the answer: settings, or a problem's code.
func change(t *testing.T, url, changes string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, strings.NewReader(changes))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("PATCH %s: %v", url, err)
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("PATCH %s: %v", url, err)
	}
	var problem struct{ Code string }
	if json.Unmarshal(body, &problem) == nil && problem.Code != "" {
		return response.StatusCode, problem.Code
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

func TestGuildSettingsRejectsAWriteThatComesTooLate(t *testing.T) {
	g := openGuild(t)
	if status, got := change(t, g.url, `{"motd":"hello"}`); status != http.StatusOK || got != `{"motd":"hello"}` {
		t.Fatalf("the first change is answered %d %s", status, got)
	}

	// A write is held up on its way to the database. Its client gives up, its lease
	// goes to the next one, and then it arrives.
	g.tell(t, "hold")
	if status, got := change(t, g.url, `{"motd":"late"}`); status != http.StatusGatewayTimeout || got != "deadline_exceeded" {
		t.Errorf("the change that is held up is answered %d %s", status, got)
	}
	if status, got := change(t, g.url, `{"color":"red"}`); status != http.StatusOK || got != `{"color":"red","motd":"hello"}` {
		t.Errorf("the change in between is answered %d %s", status, got)
	}
	g.tell(t, "release")
	eventually(t, "the late write is rejected", func() bool { return g.get(t, "/rejected") == "1" })
	if got := strings.TrimSpace(fetch(t, http.DefaultClient, g.url)); got != `{"color":"red","motd":"hello"}` {
		t.Errorf("after the late write the settings are %s", got)
	}
	if took := g.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	g.requireNothingLeft(t)
}

func TestGuildSettingsLosesNoChange(t *testing.T) {
	g := openGuild(t)
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			for status, got := 0, ""; status != http.StatusOK; {
				status, got = change(t, g.url, fmt.Sprintf(`{"%02d":true}`, i))
				if status != http.StatusOK && got != "lease_busy" || t.Failed() {
					t.Errorf("change %d is answered %d %s", i, status, got)
					return
				}
			}
		})
	}
	clients.Wait()
	var settings map[string]bool
	if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, g.url)), &settings); err != nil || len(settings) != 20 {
		t.Errorf("of 20 changes at the same time %d are there: %v, %v", len(settings), settings, err)
	}
	if n := g.get(t, "/rejected"); n != "0" {
		t.Errorf("%s changes were rejected, although each had the lease", n)
	}
}

// startSettings builds and runs the settings service of the example, and returns its
// URL.
func startSettings(t *testing.T) (url string) {
	t.Helper()
	program := t.TempDir() + "/store"
	if out, err := exec.Command("go", "build", "-o", program, "./guild-settings/store").CombinedOutput(); err != nil {
		t.Fatalf("building the settings service: %v\n%s", err, out)
	}
	url = "http://" + freeAddress(t)
	service := exec.Command(program)
	service.Env = append(os.Environ(), "SETTINGS_URL="+url)
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(service.Process.Signal(os.Interrupt), service.Wait()); err != nil {
			t.Errorf("stopping the settings service: %v", err)
		}
	})
	eventually(t, "the settings service answers", func() bool { return fetch(t, http.DefaultClient, url+"/held") != "" })
	return url
}

func TestGuildSettingsRejectsAHolderThatWasSuspended(t *testing.T) {
	copyExample(t, "guild-settings")
	setLeaseTTL(t, "2s")
	if got := runArgs(t, os.Environ(), "build", "guild-settings"); got.code != exitOK {
		t.Fatalf("build exited with %d: %s", got.code, got.stderr)
	}
	g, ownGuild := &guild{store: startSettings(t)}, guildPath()
	nats := startSharedStore(t)
	serve := func() *fleetHost {
		h := &fleetHost{}
		h.process, h.url, h.admin = serveApp(t, "guild-settings", []string{"SETTINGS_URL=" + g.store}, "--nats="+nats)
		h.url += ownGuild
		return h
	}
	first, second := serve(), serve()
	if status, got := change(t, first.url, `{"motd":"hello"}`); status != http.StatusOK {
		t.Fatalf("the first change is answered %d %s", status, got)
	}

	g.tell(t, "hold")
	var client sync.WaitGroup
	client.Go(func() {
		if status, got := change(t, first.url, `{"motd":"late"}`); status != http.StatusConflict && status != http.StatusGatewayTimeout {
			t.Errorf("the holder that was suspended is answered %d %s", status, got)
		}
	})
	eventually(t, "the write is on its way", func() bool { return g.get(t, "/held") == "1" })
	suspend(t, first, syscall.SIGSTOP)
	eventually(t, "the lease of the suspended host has lapsed", func() bool {
		status, got := change(t, second.url, `{"color":"red"}`)
		if status != http.StatusOK && got != "lease_busy" {
			t.Fatalf("the other host's change is answered %d %s", status, got)
		}
		return status == http.StatusOK
	})
	g.tell(t, "release")
	eventually(t, "the late write is rejected", func() bool { return g.get(t, "/rejected") == "1" })
	suspend(t, first, syscall.SIGCONT)
	client.Wait()
	for _, h := range []*fleetHost{first, second} {
		if got := strings.TrimSpace(fetch(t, http.DefaultClient, h.url)); got != `{"color":"red","motd":"hello"}` {
			t.Errorf("after the late write the settings are %s", got)
		}
	}
}

// setLeaseTTL changes how long the example's lease lasts.
func setLeaseTTL(t *testing.T, ttl string) {
	t.Helper()
	const file = "guild-settings/main.go"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.Replace(string(text), "TTL: 15 * time.Second", "TTL: 2 * time.Second", 1)
	if replaced == string(text) {
		t.Fatalf("%s sets no ttl of %s", file, ttl)
	}
	write(t, file, replaced)
}
