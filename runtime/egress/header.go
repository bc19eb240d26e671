package egress

import (
	"net/http"
	"slices"
	"strings"
)

// endToEnd returns the fields of h that do not belong to one connection (RFC
// 9110, section 7.6.1), without Host, which is part of the target.
func endToEnd(h http.Header) http.Header {
	out := make(http.Header, len(h)+1)
	var options []string
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		if name == "Connection" {
			options = append(options, values...)
		}
		if !hopByHop(name) {
			out[name] = slices.Concat(out[name], values)
		}
	}
	for _, line := range options {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	return out
}

func hopByHop(name string) bool {
	switch name {
	case "Connection", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// keepPublic removes every field that may identify or authorize the sender.
func keepPublic(h http.Header) {
	for name := range h {
		switch name {
		case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Encoding",
			"Content-Language", "Content-Type", "If-Modified-Since", "If-None-Match", "Range", "User-Agent":
		default:
			delete(h, name)
		}
	}
}
