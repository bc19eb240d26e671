package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// start runs the service on a free port and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "http://127.0.0.1:0", out)
		_ = out.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "payments listens on ")
}

// send returns the status and body of the answer.
func send(ctx context.Context, t *testing.T, method, url string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestTheServiceDoesWhatItIsTold(t *testing.T) {
	url := start(t)
	for _, test := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"POST", "/charges", 201, "{\"charge\":1}\n"},
		{"POST", "/control/fail", 200, ""},
		{"POST", "/charges", 500, ""},
		{"POST", "/control/decline", 200, ""},
		{"POST", "/charges", 402, "{\"error\":\"the card was declined\"}\n"},
		{"GET", "/count", 200, "3\n"},
		{"POST", "/control/dance", 404, "the modes are work, decline, slow, fail and hang\n"},
		{"POST", "/control/slow", 200, ""},
		{"POST", "/charges", 201, "{\"charge\":4}\n"},
		{"POST", "/control/work", 200, ""},
		{"POST", "/charges", 201, "{\"charge\":5}\n"},
	} {
		status, body, err := send(t.Context(), t, test.method, url+test.path)
		if status != test.status || body != test.body || err != nil {
			t.Errorf("%s %s: got %d %q, %v; want %d %q", test.method, test.path, status, body, err, test.status, test.body)
		}
	}
}

func TestAChargeThatHangsIsCounted(t *testing.T) {
	url := start(t)
	if _, _, err := send(t.Context(), t, "POST", url+"/control/hang"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status, _, err := send(ctx, t, "POST", url+"/charges"); err == nil {
		t.Errorf("got %d", status)
	}
	if _, body, err := send(t.Context(), t, "GET", url+"/count"); body != "1\n" || err != nil {
		t.Errorf("counted %q, %v", body, err)
	}
}

func TestAnEndIsNotHeldUpByAChargeThatHangs(t *testing.T) {
	url := start(t) // its cleanup waits for the end
	if _, _, err := send(t.Context(), t, "POST", url+"/control/hang"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "POST /charges HTTP/1.1\r\nHost: payments\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for body := ""; body != "1\n"; { // until it has arrived
		if _, body, err = send(t.Context(), t, "GET", url+"/count"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABusyPortNamesTheWayOut(t *testing.T) {
	url := start(t)
	if err := run(t.Context(), url, io.Discard); err == nil || !strings.Contains(err.Error(), "set PAYMENTS_URL") {
		t.Errorf("got %v", err)
	}
}

func TestAPlaceThatCannotBeServedIsRefused(t *testing.T) {
	for _, url := range []string{"https://127.0.0.1:9090", "127.0.0.1:9090", "http://", "http://192.0.2.1:9090"} {
		if err := run(t.Context(), url, io.Discard); err == nil || !strings.Contains(err.Error(), "PAYMENTS_URL") {
			t.Errorf("%q: got %v", url, err)
		}
	}
}
