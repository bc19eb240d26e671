package egress

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// CheckURL says what NewDependency finds wrong with a URL. The error does not
// repeat it, since it may hold a password.
func CheckURL(rawURL string) error {
	_, _, err := parseBase(rawURL)
	return err
}

// CheckAllowedHost says what NewPlain finds wrong with an entry.
func CheckAllowedHost(entry string) error {
	_, err := parseRule(entry)
	return err
}

// CheckAddresses says what NewDependency finds wrong with one of
// Config.Addresses.
func CheckAddresses(entry string) error {
	_, err := parseAddresses(entry)
	return err
}

// ParseProbe reads the request of a probe, such as "GET /healthz": a method that
// asks for nothing to be changed, and a target that NewRequest of every
// dependency's client takes.
func ParseProbe(text string) (method, target string, err error) {
	method, target, _ = strings.Cut(text, " ")
	if method != http.MethodGet && method != http.MethodHead || target == "" {
		return "", "", errors.New("it must be GET or HEAD, a space, and a target")
	}
	if _, err := join(new(url.URL), target); err != nil {
		return "", "", err
	}
	return method, target, nil
}
