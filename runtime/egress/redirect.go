package egress

import (
	"errors"
	"net/http"
)

// checkRedirect decides about following a redirect to next.
func (c *Client) checkRedirect(next *http.Request, via []*http.Request) error {
	if err := c.allowed.check(next.URL); err != nil {
		return err
	}
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	if c.base != nil && via[0].Method != http.MethodGet && via[0].Method != http.MethodHead {
		return http.ErrUseLastResponse
	}
	if via[0].Header.Get("Referer") == "" {
		next.Header.Del("Referer") // net/http fills in the earlier URL, whose query may hold a secret
	}
	if crossed(next, via) {
		keepPublic(next.Header)
	}
	return nil
}

// crossed reports whether a redirect has left the origin of some earlier hop.
// Coming back does not restore what was left out.
func crossed(next *http.Request, via []*http.Request) bool {
	to, _ := originOf(next.URL) // both have been checked
	for _, earlier := range via {
		if from, _ := originOf(earlier.URL); from != to {
			return true
		}
	}
	return false
}

// checkAnswer refuses an answer that the caller must not see, and closes it: a
// redirect to a place that is not allowed, even if it was not followed, and a
// change of protocol that nobody asked for.
func (c *Client) checkAnswer(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		return errors.New("the server switched to another protocol")
	}
	if !redirects(resp.StatusCode) || resp.Header.Get("Location") == "" {
		return nil
	}
	location, err := resp.Location()
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	if err := c.allowed.check(location); err != nil {
		_ = resp.Body.Close()
		return err
	}
	return nil
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
