package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// serveOn starts a front on a free port.
func serveOn(t *testing.T, handler http.HandlerFunc, cert certificate) *front {
	t.Helper()
	listener, err := listen(t.Context(), "listen", "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	f := startFront(t.Context(), listener, handler, cert, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	return f
}

func TestCloseLetsARunningRequestEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := serveOn(t, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "done")
	}, certificate{})
	answers := make(chan string, 1)
	go func() { answers <- fetch(t, http.DefaultClient, "http://"+f.listener.Addr().String()) }()
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- f.Close(context.Background()) }()
	eventually(t, "the port refuses connections", func() bool {
		conn, err := net.Dial("tcp", f.listener.Addr().String())
		if err != nil {
			return true
		}
		_ = conn.Close()
		return false
	})
	close(leave)
	if got := <-answers; got != "done" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestCloseCutsOffARequestThatOutlastsTheDrain(t *testing.T) {
	entered := make(chan struct{})
	f := serveOn(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, certificate{})
	answers := make(chan string, 1)
	go func() { answers <- fetch(t, http.DefaultClient, "http://"+f.listener.Addr().String()) }()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.Close(ctx); err == nil {
		t.Error("Close reported no error for a request that was cut off")
	}
	if got := <-answers; got != "" {
		t.Errorf("the request got %q", got)
	}
}

func TestACertificateServesHTTP2(t *testing.T) {
	cert, roots := selfSigned(t)
	f := serveOn(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }, cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	if got := fetch(t, client, "https://"+f.listener.Addr().String()); got != "HTTP/2.0" {
		t.Errorf("served %q", got)
	}
}

func TestACertificateThatCannotBeReadIsReportedAtTheStart(t *testing.T) {
	writeApp(t, withBuild("true"))
	got := runArgs(t, []string{"STRIPE_KEY=x"}, "serve", "shop", "--tls-cert=shop/nope.pem", "--tls-key=shop/nope.key")
	if got.code != exitFailure || got.stderr[:len("edgehost: --tls-cert and --tls-key: open ")] != "edgehost: --tls-cert and --tls-key: open " {
		t.Errorf("exited with %d and printed %q", got.code, got.stderr)
	}
}

// fetch returns a body, or "" if the request was broken off.
func fetch(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		return ""
	}
	body, err := io.ReadAll(response.Body)
	if errors.Join(err, response.Body.Close()) != nil {
		return ""
	}
	return string(body)
}

// selfSigned returns the files of a certificate for 127.0.0.1, and a pool that
// trusts it.
func selfSigned(t *testing.T) (certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert := certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	write(t, cert.file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, cert.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return cert, roots
}

func TestAnUnusedConnectionIsNotReportedAsCutOff(t *testing.T) {
	f := serveOn(t, func(http.ResponseWriter, *http.Request) {}, certificate{})
	conn, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}
