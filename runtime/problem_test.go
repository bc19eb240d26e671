package runtime

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

func TestEveryCodeHasAnAnswer(t *testing.T) {
	for code := abi.Code(-1); code.Valid(); code-- {
		p := problemOf(code)
		if p.code == "" || p.title == "" || p.status < 400 || p.status > 599 {
			t.Errorf("%v: %+v is no answer", code, p)
		}
	}
	if last := abi.Code(-len(problems)); last.Valid() || !(last + 1).Valid() {
		t.Errorf("the table has %d entries, which is not the number of codes", len(problems))
	}
	for _, code := range []abi.Code{0, 1, -1000} {
		if p := problemOf(code); p.code != "internal" {
			t.Errorf("%d: got %q, want internal", code, p.code)
		}
	}
}

func TestProblemsAreDocuments(t *testing.T) {
	for _, p := range append(problems[1:], problemNoRoute, problemMethod, problemFunction) {
		w := httptest.NewRecorder()
		p.write(w, "id-1", 1500*time.Millisecond)
		var d map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatalf("%s: %v", p.code, err)
		}
		if d["code"] != p.code || d["request_id"] != "id-1" || d["status"] != float64(p.status) || w.Code != p.status {
			t.Errorf("%s: %d %v", p.code, w.Code, d)
		}
		if got := w.Header().Get("Retry-After"); p.later() != (got == "2") || !p.later() && got != "" {
			t.Errorf("%s: Retry-After %q", p.code, got)
		}
	}
}

func TestRetryAfterIsWholeSecondsAndNeverZero(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1", -time.Hour: "1", time.Nanosecond: "1", time.Second: "1",
		time.Second + 1: "2", 90 * time.Second: "90",
	} {
		if got := retrySeconds(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestRequestIDsOfClientsAreTakenIfSane(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "0b5c-7:9_x.Z": true, string(make([]byte, 129)): false, "": false,
		"a b": false, `a"b`: false, "a\nb": false, "é": false,
	} {
		if got := saneID(id); got != want {
			t.Errorf("%q: got %v", id, got)
		}
	}
}

func TestWildcardsOfPatterns(t *testing.T) {
	for pattern, want := range map[string]int{
		"/": 0, "/{$}": 0, "POST /a/{id}": 1, "h.example/{a}/b/{rest...}": 2,
	} {
		if got := wildcards(pattern); len(got) != want {
			t.Errorf("%s: got %v", pattern, got)
		}
	}
	if got := wildcards("/{a}/{rest...}"); got[0] != "a" || got[1] != "rest" {
		t.Errorf("got %v", got)
	}
}

func TestObjectsAreMatchedByNameOrPrefix(t *testing.T) {
	c := FunctionConfig{Objects: []string{"settings/*", "one"}}
	for name, want := range map[string]bool{
		"one": true, "settings/1": true, "settings/a/b": true,
		"settings/": false, "settings": false, "ones": false, "setting": false, "": false,
	} {
		if got := c.allowsObject(name); got != want {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
