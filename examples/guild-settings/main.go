// Command guild-settings is an edgehost function that changes the settings of
// guilds. A change reads, merges and writes, so two of them at the same time would
// lose one: a lease lets one at a time do it. Whoever loses the lease may be too
// slow to notice, so each write carries the lease's fence, and the service that
// keeps the settings refuses a write whose fence is not the newest.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() { edge.Handle(handle) }

func main() {}

// What the settings service answers. The constants of net/http would make the
// module half as large again.
const (
	ok       = 200
	conflict = 409
)

const service = edge.Dependency("settings")

// settings are those of one guild.
type settings map[string]any

func handle(w *edge.ResponseWriter, r *edge.Request) {
	guild := r.PathValue("id")
	var (
		current settings
		err     error
	)
	if r.Method == "PATCH" {
		current, err = change(guild, r.Body)
	} else {
		current, err = read(guild)
	}
	if err != nil {
		edge.Error(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(current); err != nil {
		edge.Error(w, err)
	}
}

// change merges the changes into the guild's settings while no other request
// changes them, and returns the result.
func change(guild string, body io.Reader) (settings, error) {
	var changes settings
	if err := json.NewDecoder(body).Decode(&changes); err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w: %w", edge.Invalid, err)
	}
	lease, err := edge.Object("guild-settings/" + guild).Acquire(edge.LeaseOptions{TTL: 15 * time.Second, Wait: time.Second})
	if err != nil {
		return nil, err
	}
	current, err := read(guild)
	if err != nil {
		return nil, err
	}
	maps.Copy(current, changes)
	return current, write(guild, current, lease)
}

func read(guild string) (settings, error) {
	req, err := edge.NewRequest("GET", "/guilds/"+guild, nil)
	if err != nil {
		return nil, err
	}
	resp, err := service.Fetch(req)
	if err != nil {
		return nil, err
	}
	current := settings{}
	if resp.Status != ok {
		return nil, fmt.Errorf("the settings service answered %d: %w", resp.Status, edge.DependencyFailed)
	}
	return current, json.NewDecoder(resp.Body).Decode(&current)
}

// write stores settings under the lease: the host sends its fence along.
func write(guild string, s settings, lease *edge.Lease) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	req, err := edge.NewRequest("PUT", "/guilds/"+guild, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Lease = lease
	resp, err := service.Fetch(req)
	switch {
	case err != nil:
		return err
	case resp.Status == conflict:
		return fmt.Errorf("the settings service has seen a newer fence: %w", edge.Fenced)
	case resp.Status != ok:
		return fmt.Errorf("the settings service answered %d: %w", resp.Status, edge.DependencyFailed)
	}
	return nil
}
