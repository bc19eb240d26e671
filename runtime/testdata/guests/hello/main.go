// Command hello is the function that the benchmarks call.
package main

import "github.com/edgehost/edgehost/guests/edge"

func init() {
	edge.Handle(func(w *edge.ResponseWriter, _ *edge.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.WriteString("hello, world\n")
	})
}

func main() {}
