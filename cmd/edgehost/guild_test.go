package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
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
	g.url = g.await(t, `is served at (http://\S+)$`) + "/guilds/" + itoa(int(time.Now().UnixNano())) // a guild of its own
	eventually(t, "the settings service answers", func() bool { return g.get(t, "/held") == "0" })
	return g
}

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
