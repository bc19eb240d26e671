// Command payments is an edgehost function that pays for an order. The payment
// service is a dependency of the manifest: its circuit breaker is the fleet's,
// and the function has no code for it.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() { edge.Handle(checkout) }

func main() {}

// What the payment service answers. The constants of net/http would make the
// module half as large again.
const (
	created         = 201
	paymentRequired = 402
)

// checkout answers POST /orders/{id} with the charge that pays for the order.
func checkout(w *edge.ResponseWriter, r *edge.Request) {
	answer, err := charge(r.PathValue("id"))
	if err != nil {
		edge.Error(w, err) // the status that belongs to err, with Retry-After if it has one
		return
	}
	switch answer.Status {
	case created, paymentRequired: // charged, or declined
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Status)
		if _, err := io.Copy(w, answer.Body); err != nil {
			edge.Error(w, err)
		}
	default:
		edge.Error(w, fmt.Errorf("payments answered %d: %w", answer.Status, edge.DependencyFailed))
	}
}

// charge asks the payment service for a charge. While the service is known to
// fail, the error says so and nothing is sent.
func charge(order string) (*edge.Response, error) {
	body, err := json.Marshal(map[string]string{"order": order})
	if err != nil {
		return nil, err
	}
	req, err := edge.NewRequest("POST", "/charges", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header().Set("Content-Type", "application/json")
	return edge.Dependency("payments").Fetch(req)
}
