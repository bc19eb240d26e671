// Command hello is the smallest edgehost function: it greets.
package main

import "github.com/edgehost/edgehost/guests/edge"

func init() { edge.Handle(hello) }

func main() {} // does not run: a function is called through its handler

// hello answers GET /hello and GET /hello/{name}.
func hello(w *edge.ResponseWriter, r *edge.Request) {
	name := r.PathValue("name")
	if name == "" {
		name = "world"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.WriteString("hello, " + name + "\n")
}
