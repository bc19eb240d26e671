// Command nohandler is a guest that sets its handler where nobody comes by.
package main

import "github.com/edgehost/edgehost/guests/edge"

func main() {
	edge.Handle(func(*edge.ResponseWriter, *edge.Request) {})
}
