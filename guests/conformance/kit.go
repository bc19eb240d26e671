package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Deployment is a function that the kit wants served, with what its manifest
// gives to it. What is zero is left to the host.
type Deployment struct {
	Module         []byte
	Routes         []string // http.ServeMux patterns
	Timeout        time.Duration
	MaxRequestBody int64
	Env, Secrets   map[string]string
	Dependencies   []Dependency
	AllowHosts     []string
	Objects        []string
}

// A Dependency is a dependency of a Deployment, and of no other.
type Dependency struct {
	Name, URL        string
	Timeout          time.Duration
	FailureThreshold int
	ResetAfter       time.Duration
}

// Run checks a host against ABI.md: every call of a guest that has no SDK, and
// what the client gets. Deploy must serve the deployment over HTTP/1.1, without
// anything in between, until its test ends, and return the base URL. It is
// called several times, and the deployments are served at the same time.
//
// Each test is named after the section of ABI.md whose rule it checks.
func Run(t *testing.T, deploy func(t *testing.T, d Deployment) string) {
	t.Helper()
	up := startUpstream(t)
	k := &kit{upstream: up, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	t.Cleanup(k.client.CloseIdleConnections)
	k.guest = deploy(t, k.deployment("/", guestTimeout))
	k.hasty = deploy(t, k.deployment("/hasty/", hastyTimeout))
	early := k.deployment("/early/", guestTimeout)
	early.Module = earlyBird()
	earlyURL := deploy(t, early)
	t.Run("1.3 before a request few functions work", func(t *testing.T) { k.checkEarly(t, earlyURL) })
	for _, c := range allCases(up.URL) {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			t.Parallel()
			k.check(t, c)
		})
	}
}

func allCases(upstreamURL string) []testCase {
	return slices.Concat(
		boundaryCases(), argumentCases(), handleCases(), recordCases(), hostCases(), waitCases(), readyCases(),
		requestCases(), requestBodyCases(), responseCases(), responseFieldCases(), responseBodyCases(), streamCases(),
		failureCases(), lateCases(), failCases(), failCodeCases(),
		callBodyCases(), callAnswerCases(), callVerdictCases(upstreamURL), breakerCases(),
		leaseCases(), leaseEndCases(), stateCases(), leasedStateCases(), laterCases())
}

// Times are long enough for a loaded machine, where a case only fails by them.
const (
	guestTimeout = 15 * time.Second
	hastyTimeout = time.Second // of the cases that wait for it
)

type kit struct {
	upstream     *upstream
	client       *http.Client
	guest, hasty string // base URLs
}

func (k *kit) deployment(prefix string, timeout time.Duration) Deployment {
	dependency := func(name string, threshold int, reset time.Duration) Dependency {
		return Dependency{name, k.upstream.URL + "/base", guestTimeout, threshold, reset}
	}
	return Deployment{
		Module:         interpreter(),
		Routes:         []string{prefix, prefix + "items/{id}/{rest...}"},
		Timeout:        timeout,
		MaxRequestBody: 1 << 20,
		Env:            map[string]string{"GREETING": "hi", "EMPTY": ""},
		Secrets:        map[string]string{"KEY": "s3cret"},
		Dependencies: []Dependency{
			dependency("up", 1000, time.Hour),
			dependency("trips", 1, time.Hour),
			dependency("trips-on-fetch", 1, time.Hour),
			dependency("heals", 1, 10*time.Millisecond),
			{"slow", k.upstream.URL + "/base", 50 * time.Millisecond, 1000, time.Hour},
			{"gone", "http://127.0.0.1:1/", time.Second, 1000, time.Hour},
		},
		AllowHosts: []string{"allowed.invalid"},
		Objects:    []string{"doc/*"},
	}
}

// A testCase is a request whose guest runs a script.
type testCase struct {
	rule    string // the section of ABI.md
	name    string
	target  string // "/" if empty
	hasty   bool   // for the function with the short timeout
	request func(*http.Request)
	body    string        // what follows the program
	hold    bool          // send the rest of the body, "end", only when the response's head is there
	before  func(*script) // of a request of its own, which comes first and whose response does not matter
	leaves  bool          // the client of the first request goes away when it has the head
	script  func(*script)
	check   func(response) error // beside what the script expects; the default wants a plain 200
}

// A response is all that the client got.
type response struct {
	*http.Response
	body          string
	broken        error // why the body ended before its end
	informational []int
}

func (k *kit) check(t *testing.T, c testCase) {
	t.Helper()
	if c.before != nil {
		if err := k.first(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	s := &script{}
	c.script(s)
	size := len(s.data)
	tag := strings.Map(tagRune, t.Name())
	got, err := k.exchange(t.Context(), c, s.program(tag))
	if err != nil {
		t.Fatal(err)
	}
	if c.check == nil && s.answer == resultsInBody {
		c.check = status200
	}
	if c.check != nil {
		if err := c.check(got); err != nil {
			t.Fatalf("%v\nresponse %d %q", err, got.StatusCode, shortened(got.body))
		}
	}
	if s.answer == noResults {
		return
	}
	left := got.body
	if s.answer == resultsUpstream {
		left = string(k.upstream.kept(t.Context(), tag))
	}
	for _, err := range s.verify([]byte(left), size) {
		t.Error(err)
	}
}

// first sends the request that comes before that of a case.
func (k *kit) first(ctx context.Context, c testCase) error {
	s := &script{answer: noResults}
	c.before(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.leaves {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: cancel})
	}
	_, err := k.exchange(ctx, testCase{}, s.program("first"))
	if c.leaves && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// tagRune makes a name fit for a path.
func tagRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

func shortened(s string) string { return s[:min(len(s), 300)] }

// exchange sends a request and receives the response, whatever becomes of it.
func (k *kit) exchange(ctx context.Context, c testCase, program []byte) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*guestTimeout)
	defer cancel()
	var got response
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			got.informational = append(got.informational, code)
			return nil
		},
	})
	base := k.guest
	if c.hasty {
		base = k.hasty + "/hasty"
	}
	held, release := io.Pipe()
	context.AfterFunc(ctx, func() { _ = release.CloseWithError(context.Canceled) }) // at the latest with cancel
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/"+strings.TrimPrefix(c.target, "/"), requestBody(c, program, held))
	if err != nil {
		return got, err
	}
	if c.request != nil {
		c.request(r)
	}
	resp, err := k.client.Do(r)
	if err != nil {
		return got, err
	}
	defer func() { _ = resp.Body.Close() }()
	got.Response = resp
	if c.hold {
		_, _ = io.WriteString(release, "end") // if nobody wants it, the results say so
		_ = release.Close()
	}
	body, err := io.ReadAll(resp.Body)
	got.body, got.broken = string(body), err
	return got, nil
}

// requestBody is the program and what follows it. Its length is not told if a
// part is held back.
func requestBody(c testCase, program []byte, held io.ReadCloser) io.Reader {
	sent := string(program) + c.body
	if c.hold {
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(sent), held), held}
	}
	return strings.NewReader(sent)
}

// status200 expects a whole answer.
func status200(r response) error {
	if r.StatusCode != http.StatusOK {
		return errors.New("the guest did not answer")
	}
	return r.broken
}

// problem expects a problem document (RFC 9457) with that code.
func problem(status int, code string) func(response) error {
	return func(r response) error {
		var document struct {
			Status    int
			Code      string
			RequestID string `json:"request_id"`
		}
		if r.StatusCode != status {
			return fmt.Errorf("status %d, want %d %s", r.StatusCode, status, code)
		}
		if kind := r.Header.Get("Content-Type"); kind != "application/problem+json" {
			return fmt.Errorf("Content-Type %q", kind)
		}
		if err := json.Unmarshal([]byte(r.body), &document); err != nil {
			return err
		}
		if document.Code != code || document.Status != status {
			return fmt.Errorf("problem %+v, want %s", document, code)
		}
		if document.RequestID == "" || document.RequestID != r.Header.Get("X-Request-Id") {
			return fmt.Errorf("request id %q in the document, %q in the head", document.RequestID, r.Header.Get("X-Request-Id"))
		}
		return nil
	}
}

// brokenOff expects an answer that the client can see is not whole.
func brokenOff(r response) error {
	if r.broken == nil {
		return errors.New("the answer ended as if it were whole")
	}
	return nil
}
