// Command httpguest is the tour of net/http as a Wasm guest.
package main

import (
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest/internal/httptour"
)

func init() { edgehttp.Handle(httptour.Handler()) }

func main() {}
