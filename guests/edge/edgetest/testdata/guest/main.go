// Command guest is the tour as a Wasm guest.
package main

import (
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest/internal/tour"
)

func init() { edge.Handle(tour.Handler) }

func main() {}
