package main

import (
	"encoding/json"
	"net/http"
)

// A problemDocument is an error as RFC 9457 has it, with the codes of the answers
// to clients of functions.
type problemDocument struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, status int, code, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problemDocument{"urn:edgehost:problem:" + code, title, status, code}) // the client went away
}

// documented answers what no pattern of the mux matches with a problem document in
// place of the mux's text.
func documented(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern == "" {
			h.ServeHTTP(unmatched{w}, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// unmatched is what a mux writes its own errors to.
type unmatched struct{ w http.ResponseWriter }

// Header implements [http.ResponseWriter].
func (u unmatched) Header() http.Header { return u.w.Header() }

// WriteHeader implements [http.ResponseWriter].
func (u unmatched) WriteHeader(status int) {
	if status == http.StatusMethodNotAllowed {
		refuse(u.w, status, "method_not_allowed", "The resource does not have this method")
		return
	}
	refuse(u.w, http.StatusNotFound, "no_route", "Nothing is served at this address")
}

// Write implements [http.ResponseWriter].
func (unmatched) Write(text []byte) (int, error) { return len(text), nil }
