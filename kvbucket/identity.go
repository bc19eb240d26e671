package kvbucket

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
)

// An Identity says who connects, and whom to trust. The zero value is nobody in
// particular, over TLS only if the server asks for it.
type Identity struct {
	// NKey names a file with the seed of an NKey.
	NKey string
	// Token is the server's shared secret.
	Token string
	// User and Password are those of a user that the server's configuration names.
	User, Password string
	// CA names a PEM file with the authorities that may sign the server's
	// certificate; empty for the system's.
	CA string
	// Cert and Key name PEM files with a certificate for the client. They come
	// together.
	Cert, Key string
}

// options returns the connection options for the identity. Files that cannot be used
// are errors that name them.
func (id Identity) options() ([]nats.Option, error) {
	var opts []nats.Option
	if id.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(id.NKey)
		if err != nil {
			return nil, fmt.Errorf("kvbucket: nkey %s: %w", id.NKey, err)
		}
		opts = append(opts, opt)
	}
	if id.Token != "" {
		opts = append(opts, nats.Token(id.Token))
	}
	if id.User != "" {
		opts = append(opts, nats.UserInfo(id.User, id.Password))
	}
	if (id.Cert == "") != (id.Key == "") {
		return nil, errors.New("kvbucket: a client certificate needs both a certificate and a key")
	}
	for _, file := range []string{id.CA, id.Cert, id.Key} {
		if err := readable(file); err != nil {
			return nil, err
		}
	}
	if id.CA != "" {
		opts = append(opts, nats.RootCAs(id.CA))
	}
	if id.Cert != "" {
		opts = append(opts, nats.ClientCert(id.Cert, id.Key))
	}
	return opts, nil
}

// readable returns an error that names the file, unless there is none to read.
func readable(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("kvbucket: credentials: %w", err)
	}
	return f.Close()
}
