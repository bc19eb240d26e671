package kvbucket_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/edgehost/edgehost/kvbucket"
)

// An NKey that guards nothing.
const (
	testSeed   = "SUABV65LJB4PMDS552F5KO26OBUVULWQQJ7SJXDXG7FDBJF6Q25RGXBMEU"
	testPublic = "UA5EAF2HOYCZODB4XZBW4WJR7ZQOM5UMQXIL6RYP7DFO5A2TNRKGCKFV"
)

// certified returns a certificate for 127.0.0.1 and the file with its authority.
func certified(t *testing.T) (certificate tls.Certificate, authority string) {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	defer https.Close()
	block := &pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}
	return https.TLS.Certificates[0], writeFile(t, "ca.pem", string(pem.EncodeToMemory(block)))
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEveryKindOfIdentityIsAccepted(t *testing.T) {
	certificate, authority := certified(t)
	for _, test := range []struct {
		name     string
		server   server.Options
		identity kvbucket.Identity
		refusal  string // of nobody in particular
	}{
		{"a user", server.Options{Username: "shop", Password: "secret"}, kvbucket.Identity{User: "shop", Password: "secret"}, "Authorization Violation"},
		{"a token", server.Options{Authorization: "shared"}, kvbucket.Identity{Token: "shared"}, "Authorization Violation"},
		{
			"an nkey",
			server.Options{Nkeys: []*server.NkeyUser{{Nkey: testPublic}}},
			kvbucket.Identity{NKey: writeFile(t, "user.nk", testSeed)},
			"Authorization Violation",
		},
		{
			"a private authority",
			server.Options{TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}},
			kvbucket.Identity{CA: authority},
			"certificate",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := test.server
			options.Host, options.Port, options.JetStream, options.StoreDir, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true
			ns, err := server.NewServer(&options)
			if err != nil {
				t.Fatal(err)
			}
			ns.Start()
			defer ns.WaitForShutdown()
			defer ns.Shutdown()
			url := "nats://" + ns.Addr().String()
			c, err := kvbucket.Dial(deadline(t), kvbucket.ConnConfig{URL: url, Identity: test.identity})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(deadline(t)); err != nil {
				t.Error(err)
			}
			_, err = kvbucket.Dial(deadline(t), kvbucket.ConnConfig{URL: url})
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.refusal)) {
				t.Errorf("nobody in particular gets the error %v, want one about %q", err, test.refusal)
			}
		})
	}
}

func TestIdentitiesThatCannotBeUsedNameTheirFiles(t *testing.T) {
	for _, test := range []struct {
		name     string
		identity kvbucket.Identity
		want     string
	}{
		{"a missing nkey", kvbucket.Identity{NKey: "/missing.nk"}, "/missing.nk"},
		{"a file that is no nkey", kvbucket.Identity{NKey: writeFile(t, "broken.nk", "?")}, "broken.nk"},
		{"a missing authority", kvbucket.Identity{CA: "/missing.pem"}, "/missing.pem"},
		{"a certificate without its key", kvbucket.Identity{Cert: "/cert.pem"}, "both a certificate and a key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: "nats://127.0.0.1:1", Identity: test.identity})
			wantText(t, err, test.want)
		})
	}
}
