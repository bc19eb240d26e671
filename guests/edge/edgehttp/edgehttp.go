// Package edgehttp lets a function be written with net/http. Handle serves the
// function's requests by an [http.Handler], so that routers and middleware of the
// Go world run in a guest, and Transport is an [http.RoundTripper] that calls a
// dependency of the manifest:
//
//	func init() {
//		client := &http.Client{Transport: edgehttp.Transport("payments")}
//		mux := http.NewServeMux()
//		mux.HandleFunc("POST /orders/{id}/charge", func(w http.ResponseWriter, r *http.Request) {
//			req, _ := http.NewRequestWithContext(r.Context(), "POST", "/charge", r.Body)
//			resp, err := client.Do(req)
//			if err != nil {
//				edgehttp.Error(w, err) // 503 with Retry-After while the breaker is open
//				return
//			}
//			defer resp.Body.Close()
//			…
//		})
//		edgehttp.Handle(mux)
//	}
//
//	func main() {}
//
// It is kept apart from package edge because net/http makes a module large and a
// request dear: a function of 4 MB has 6 MB with a handler and 12 MB with an
// [http.Client], and takes tens of microseconds more to answer.
//
// # Blocking
//
// An instance serves one request at a time and has one thread. Reading a body,
// writing a response and RoundTrip stop all goroutines of the guest until the host
// answers: requests that goroutines make are sent one after another (edge.Start
// has several under way), and no timer fires meanwhile. A goroutine that still
// runs when the handler returns costs the instance; close response bodies, since
// an [http.Client] with a Timeout keeps a goroutine for each that is open.
package edgehttp

import (
	"net/http"

	"github.com/edgehost/edgehost/guests/edge"
)

// Handle registers the guest's handler, from an init function. A nil handler
// stands for http.DefaultServeMux.
func Handle(h http.Handler) { edge.Handle(Handler(h)) }

// Handler returns an edge.Handler that serves requests by h, or by
// http.DefaultServeMux if h is nil.
//
// The request is one that a server of net/http would pass. Its path values and
// Pattern are those of the manifest's route, until an [http.ServeMux] in the guest
// sets its own. Its context is that of edge.Request. TLS is set, without details,
// if the client used https. Header and trailer fields of the connection, which a
// server would show, stay with the host. Reading the body fails with edge.TooLarge
// beyond the function's limit.
//
// The response follows the rules of net/http for the implicit status, Content-Type
// detection, bodies that are not allowed or longer than their Content-Length,
// informational statuses and trailers, announced or with [http.TrailerPrefix].
// Through an [http.ResponseController] it can be flushed, and a handler may always
// read the request while it writes; deadlines and Hijack are not supported.
//
// A panic is handled as edge.Handle says, and [http.ErrAbortHandler] without a
// word in the log.
func Handler(h http.Handler) edge.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	return func(w *edge.ResponseWriter, r *edge.Request) {
		response := newResponseWriter(w)
		defer response.recoverAbort()
		h.ServeHTTP(response, newRequest(r))
		response.finish()
	}
}

// Error answers the request with the problem document for err, as edge.Error does.
// The error of an [http.Client] will do: its code is found in it. If w is not that
// of a handler of this package, nor unwraps to it, the answer is a plain 500.
func Error(w http.ResponseWriter, err error) {
	for next := w; ; {
		switch t := next.(type) {
		case *responseWriter:
			t.fail(err)
			return
		case interface{ Unwrap() http.ResponseWriter }:
			next = t.Unwrap()
		default:
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
	}
}
