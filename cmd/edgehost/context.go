package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/edgehost/edgehost/kvbucket"
)

// A natsContext is what the nats tool keeps under a name: how to reach a NATS
// server (natscli, `nats context add`). Settings that edgehost has no use for, such
// as colours, are passed over.
type natsContext struct {
	URL      string `json:"url"`
	Creds    string `json:"creds"`
	NKey     string `json:"nkey"`
	Token    string `json:"token"`
	User     string `json:"user"`
	Password string `json:"password"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	CA       string `json:"ca"`

	// Not supported, but not to be passed over either:
	NSC          string `json:"nsc"`
	UserJWT      string `json:"user_jwt"`
	UserSeed     string `json:"user_seed"`
	SocksProxy   string `json:"socks_proxy"`
	InboxPrefix  string `json:"inbox_prefix"`
	JSDomain     string `json:"jetstream_domain"`
	JSAPIPrefix  string `json:"jetstream_api_prefix"`
	TLSFirst     bool   `json:"tls_first"`
	WindowsStore string `json:"windows_cert_store"`
}

// contextDirectory returns where the nats tool keeps its settings.
func contextDirectory(t *terminal) (string, error) {
	if dir, _ := t.env("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, _ := t.env("HOME")
	if home == "" {
		return "", errors.New("the contexts of the nats tool are in the home directory, but HOME is not set")
	}
	return filepath.Join(home, ".config", "nats"), nil
}

// readContext reads a context of the nats tool by its name, or by its file if the
// name is an absolute path.
func readContext(t *terminal, name string) (*natsContext, error) {
	file := name
	if !filepath.IsAbs(name) {
		dir, err := contextDirectory(t)
		if err != nil {
			return nil, err
		}
		if name != filepath.Base(name) {
			return nil, fmt.Errorf("--context %s: a context has no directory in its name", name)
		}
		file = filepath.Join(dir, "context", name+".json")
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--context %s: there is no %s (\"nats context list\" shows those there are)", name, file)
	}
	if err != nil {
		return nil, fmt.Errorf("--context %s: %w", name, err)
	}
	var c natsContext
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("--context %s: %s is not JSON: %w", name, file, err)
	}
	if unsupported := c.unsupported(); len(unsupported) > 0 {
		return nil, fmt.Errorf("--context %s: edgehost does not support %s, which %s sets", name, strings.Join(unsupported, " and "), file)
	}
	return &c, nil
}

// unsupported names the settings without which the server would not be reached, or
// another account would.
func (c *natsContext) unsupported() []string {
	var names []string
	for _, s := range []struct {
		name string
		set  bool
	}{
		{"nsc", c.NSC != ""},
		{"user_jwt", c.UserJWT != ""},
		{"user_seed", c.UserSeed != ""},
		{"socks_proxy", c.SocksProxy != ""},
		{"inbox_prefix", c.InboxPrefix != ""},
		{"jetstream_domain", c.JSDomain != ""},
		{"jetstream_api_prefix", c.JSAPIPrefix != ""},
		{"tls_first", c.TLSFirst},
		{"windows_cert_store", c.WindowsStore != ""},
	} {
		if s.set {
			names = append(names, s.name)
		}
	}
	return names
}

// config returns the connection that the context describes.
func (c *natsContext) config(t *terminal) kvbucket.ConnConfig {
	return kvbucket.ConnConfig{
		URL: c.URL, Creds: expandHome(t, c.Creds), Identity: kvbucket.Identity{
			NKey: expandHome(t, c.NKey), Token: c.Token, User: c.User, Password: c.Password,
			CA: expandHome(t, c.CA), Cert: expandHome(t, c.Cert), Key: expandHome(t, c.Key),
		},
	}
}

// expandHome puts the home directory in the place of a leading ~.
func expandHome(t *terminal, file string) string {
	rest, ok := strings.CutPrefix(file, "~/")
	home, _ := t.env("HOME")
	if !ok || home == "" {
		return file
	}
	return filepath.Join(home, rest)
}

// connection returns how to reach the store that the flags, or else the environment,
// name: a flag comes before the context, and that before NATS_URL. The URL is empty
// if none does.
func (f *natsFlags) connection(t *terminal) (kvbucket.ConnConfig, error) {
	var config kvbucket.ConnConfig
	if f.Context != "" {
		c, err := readContext(t, f.Context)
		if err != nil {
			return config, err
		}
		config = c.config(t)
	}
	if f.NATS != "" || config.URL == "" {
		config.URL = f.url(t)
	}
	if f.Context != "" && config.URL == "" {
		config.URL = "nats://" + defaultNATS
	}
	if f.Creds != "" {
		config.Creds = f.Creds
	}
	return config, nil
}

// dial connects a command that looks at the store.
func (f *natsFlags) dial(ctx context.Context, t *terminal, name string) (*kvbucket.Conn, string, error) {
	config, err := f.connection(t)
	if err != nil {
		return nil, "", err
	}
	if config.URL == "" {
		config.URL = "nats://" + defaultNATS
	}
	config.Name = "edgehost " + name
	conn, err := kvbucket.Dial(ctx, config)
	if err != nil {
		return nil, "", fmt.Errorf("connecting to the store at %s (name another with --nats): %w", config.URL, err)
	}
	return conn, config.URL, nil
}
